"""Finds out what a model directory holds and loads it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from oasr.decoding.tokenizer import Tokenizer
from oasr.errors import ModelError
from oasr.models.conformer.model import ConformerModel
from oasr.models.conformer.settings import ModelSettings
from oasr.models.conformer.train_yaml import load_settings
from oasr.models.conformer.weights import check_cmvn, read_weights, split_weights

DIGEST_HEX = 16
CARD_FILE = "model.json"
UNIT_FILES = ("units.txt", "words.txt")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Names a loaded model in transcripts and logs."""

    name: str
    digest: str  # first 16 hex digits of the SHA-256 of final.pt
    device: str
    dtype: str
    languages: tuple[str, ...]  # empty: the directory does not say


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to decode."""

    model: ConformerModel
    settings: ModelSettings
    tokenizer: Tokenizer
    info: ModelInfo
    decoder_weights: dict[str, Tensor]  # of the attention decoder, by name, as requested dtype


def load_model(ckpt_dir: str | Path, device: str | torch.device, dtype: torch.dtype) -> LoadedModel:
    """Load the model in a directory; ModelError says why it cannot be served.

    A directory with `train.yaml` is a WeNet checkpoint. An optional `model.json` gives the
    name (else the directory's) and the languages: `{"name": "…", "languages": ["en"]}`.
    """
    directory = Path(ckpt_dir)
    if not directory.is_dir():
        raise ModelError(f"{directory} is not a directory")
    if (directory / "train.yaml").is_file():
        return _load_wenet(directory, torch.device(device), dtype)
    raise ModelError(f"{directory} holds no known kind of model: train.yaml is missing")


def _load_wenet(directory: Path, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    settings = load_settings(directory / "train.yaml")
    tokenizer = Tokenizer.from_units(_units_path(directory, settings), settings.special_tokens)
    if len(tokenizer) != settings.vocab:
        raise ModelError(
            f"train.yaml: output_dim is {settings.vocab}, but there are {len(tokenizer)} units"
        )
    model = ConformerModel(settings)
    weights, decoder_weights = split_weights(read_weights(directory / "final.pt"), model)
    model.load_state_dict(weights)
    if settings.cmvn_file is not None:
        check_cmvn(directory / settings.cmvn_file, model)
    name, languages = read_card(directory)
    info = ModelInfo(
        name=name,
        digest=file_digest(directory / "final.pt"),
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        languages=languages,
    )
    decoder_weights = {n: w.to(device, dtype) for n, w in decoder_weights.items()}
    return LoadedModel(model.prepare(device, dtype), settings, tokenizer, info, decoder_weights)


def _units_path(directory: Path, settings: ModelSettings) -> Path:
    for name in (settings.units_file, *UNIT_FILES):
        if (directory / name).is_file():
            return directory / name
    raise ModelError(f"{directory} holds none of {', '.join(UNIT_FILES)}")


def read_card(directory: Path) -> tuple[str, tuple[str, ...]]:
    """The name and the languages of a model: its card's, else the directory's and none."""
    path = directory / CARD_FILE
    if not path.is_file():
        return directory.resolve().name, ()
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(card, dict):
        raise ModelError(f"{path.name} is not a mapping")
    name, languages = card.pop("name", directory.resolve().name), card.pop("languages", [])
    if card:
        raise ModelError(f"{path.name}: unknown key: {', '.join(sorted(card))}")
    if not isinstance(name, str) or not isinstance(languages, list):
        raise ModelError(f"{path.name}: name has to be a string, languages a list")
    return name, tuple(str(language) for language in languages)


def file_digest(path: Path) -> str:
    """The first hex digits of a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:DIGEST_HEX]
