"""The bundled model's stated word error rates, from whole-file features and the chunk mask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile
import torch

import oasr
from oasr.decoding.ctc_greedy import GreedyDecoder, best_path
from oasr.decoding.wer import Wer
from oasr.features.fbank import Fbank
from oasr.models.registry import LoadedModel, load_model

BUNDLED = Path(oasr.__file__).parent / "assets/callcenter-en-tiny"
TESTSETS = Path(__file__).parents[2] / "data/testsets"
FILES_PER_BATCH = 20

# (chunk size, left chunks) → percent, from the README of the model
STATED = {
    "human_digits": {(-1, -1): 4.5, (16, -1): 5.9, (16, 4): 6.2, (4, -1): 5.7},
    "phrases": {(-1, -1): 7.0, (16, -1): 8.4, (16, 4): 8.4, (4, -1): 11.0},
}
WORDS = {"human_digits": 422, "phrases": 618}


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load_model(BUNDLED, "cpu", torch.float32)


def batches(name: str) -> list[tuple[list[str], torch.Tensor, torch.Tensor]]:
    """(texts, features, frame counts), files of like lengths together."""
    entries = json.loads((TESTSETS / name / "reference.json").read_text(encoding="utf-8"))
    files = [
        (
            torch.from_numpy(soundfile.read(TESTSETS / name / e["file"], dtype="float32")[0]),
            e["text"],
        )
        for e in entries
    ]
    files.sort(key=lambda file: file[0].numel())
    fbank, result = Fbank(), []
    for first in range(0, len(files), FILES_PER_BATCH):
        waves, texts = zip(*files[first : first + FILES_PER_BATCH], strict=True)
        lengths = torch.tensor([wave.numel() for wave in waves])
        padded = torch.nn.utils.rnn.pad_sequence(list(waves), batch_first=True)
        result.append((list(texts), *fbank(padded, lengths)))
    return result


def transcribe(
    loaded: LoadedModel, feats: torch.Tensor, counts: torch.Tensor, view: tuple[int, int]
) -> list[str]:
    with torch.inference_mode():
        enc, lengths = loaded.model.encode_full(feats, counts, *view)
        ids, scores = best_path(loaded.model.ctc_log_probs(enc))
    texts = []
    for row, length in enumerate(lengths.tolist()):
        decoder = GreedyDecoder(loaded.settings.blank_id)
        decoder.update(ids[row, :length], scores[row, :length], first_frame=0)
        texts.append(loaded.tokenizer.decode(decoder.tokens))
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STATED))
def test_the_error_rates_of_the_readme_are_met_within_two_words(bundled, name):
    prepared = batches(name)
    found = {}
    for view in STATED[name]:
        wer = Wer()
        for texts, feats, counts in prepared:
            heard = transcribe(bundled, feats, counts, view)
            for reference, hypothesis in zip(texts, heard, strict=True):
                wer.add(reference, hypothesis)
        assert wer.words == WORDS[name]
        found[view] = wer.errors

    stated = {view: percent * WORDS[name] / 100 for view, percent in STATED[name].items()}
    assert found == {view: pytest.approx(errors, abs=2.0) for view, errors in stated.items()}
