"""The bundled test lists, and what a streaming engine hears in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from oasr.decoding.options import DecodingOptions
from oasr.engine.engine import ASREngine
from oasr.engine.request import RequestOutput

FOLDER = Path(__file__).parents[2] / "tests/data/testsets"


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance: its words, and samples at 16 kHz."""

    text: str
    samples: NDArray[np.float32]


def spoken_list(name: str) -> list[Spoken]:
    """`human_digits` or `phrases`."""
    entries = json.loads((FOLDER / name / "reference.json").read_text(encoding="utf-8"))
    return [
        Spoken(entry["text"], soundfile.read(FOLDER / name / entry["file"], dtype="float32")[0])
        for entry in entries
    ]


def finals(
    engine: ASREngine, utterances: list[Spoken], decoding: DecodingOptions
) -> Iterator[tuple[str, RequestOutput]]:
    """What was said and the last output, of each utterance as a stream."""
    ids = []
    for utterance in utterances:
        ids.append(engine.add_streaming_request(decoding=decoding))
        engine.feed_chunk(ids[-1], utterance.samples, is_last=True)
    heard = {output.request_id: output for output in engine.run() if output.finished}
    for request_id, utterance in zip(ids, utterances, strict=True):
        yield utterance.text, heard[request_id]
