"""The bundled model, streamed, on the lists on which its README states error rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from oasr.decoding.wer import Wer
from oasr.engine.families import BUNDLED_MODEL
from oasr.models.registry import LoadedModel, load_model
from tests.support.engine import Samples, make_engine, stream_all

LISTS = Path(__file__).parents[2] / "data" / "testsets"

# Percent of the list's words, from the README of the model.
README_WER = {
    ("human_digits", 16, -1): 5.9,
    ("human_digits", 16, 4): 6.2,
    ("human_digits", 4, -1): 5.7,
    ("phrases", 16, -1): 8.4,
    ("phrases", 16, 4): 8.4,
    ("phrases", 4, -1): 11.0,
}


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    import torch

    return load_model(BUNDLED_MODEL, "cpu", torch.float32)


def read_list(name: str) -> tuple[list[Samples], list[str]]:
    entries = json.loads((LISTS / name / "reference.json").read_text())
    audio = [soundfile.read(LISTS / name / e["file"], dtype="float32")[0] for e in entries]
    return audio, [entry["text"] for entry in entries]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chunk", "left"), list(README_WER))
def test_streamed_lists_equal_the_full_forward_and_the_stated_rates(bundled, name, chunk, left):
    audio, references = read_list(name)
    setting = {"chunk_size": chunk, "num_left_chunks": left}
    engine = make_engine(bundled, offline_chunk_size=chunk, **setting)

    streamed = [o.text for o in stream_all(engine, audio)]

    assert streamed == [o.text for o in engine.transcribe(audio)]
    wer = Wer()
    for reference, text in zip(references, streamed, strict=True):
        wer.add(reference, text)
    stated = README_WER[name, chunk, left] * wer.words / 100
    assert abs(wer.errors - stated) <= 2.5  # two words, and the rounding of the stated rate
