"""Calls of two people heard by the bundled model: what is said, when, and on which side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import soxr

from oasr.audio import g711
from oasr.decoding.wer import Wer
from oasr.engine.engine import ASREngine
from tests.support.calls import chunk, control
from tests.support.engine import make_bundled_engine
from tests.support.partitions import Desk
from tests.support.signals import Int16Array
from tests.support.testsets import read_list
from worker.messages import RawMessage
from worker.recognizer import Recognizer
from worker.segments import Segment

RATE = 8000
CHUNK_MS = 200


@cache
def bundled_engine() -> ASREngine:
    """The engine of this process; loading takes long."""
    return make_bundled_engine()


class ModelSpeech:
    """The bundled model where a desk has its hashes."""

    def __init__(self) -> None:
        self._recognizer = Recognizer(bundled_engine(), lambda: 0.0)

    def open(self, segment: Segment, priority: int) -> str:
        return self._recognizer.open(segment, priority, 0)

    def feed(
        self, request_id: str, samples: np.ndarray, keep_samples: int | None, last: bool
    ) -> None:
        self._recognizer.feed(request_id, samples, keep_samples, last)

    def drop(self, request_id: str) -> None:
        self._recognizer.drop(request_id)

    def step(self) -> None:
        while self._recognizer.has_work:
            self._recognizer.step()


@dataclass
class Side:
    """One person of a call: utterances with the second at which each begins."""

    turns: Sequence[tuple[float, int]]  # start, number in the list of phrases
    audio: Int16Array = field(init=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        said = [(round(at * RATE), *_phrase(number)) for at, number in self.turns]
        end = max(start + len(samples) for start, samples, _ in said) + RATE // 2
        self.audio = np.zeros(end, np.int16)
        for (start, samples, _), following in pairwise([*said, (end, [], "")]):
            assert start + len(samples) <= following[0]  # one person says one thing at a time
            self.audio[start : start + len(samples)] = samples
        self.text = " ".join(text for _, _, text in said)

    def chunks(self, channel: int, channels: int = 2) -> list[RawMessage]:
        """Mono messages of 200 ms with numbers and times of their own."""
        samples = CHUNK_MS * RATE // 1000
        data = g711.linear_to_mulaw(self.audio)
        roles = ",".join(("agent", "customer")[:channels])
        where = {"channel": channel, "channels": channels, "roles": roles}
        return [
            chunk("c", data[at : at + samples], sequence=n, position_ms=n * CHUNK_MS, **where)
            for n, at in enumerate(range(0, len(data), samples))
        ]


@cache
def _phrase(number: int) -> tuple[Int16Array, str]:
    samples, text = read_list("phrases")[number]
    resampled = soxr.resample(samples, 16_000, RATE)
    return np.rint(np.clip(resampled, -1, 1) * 32767).astype(np.int16), text


Utterance = tuple[int, float, float, str]  # channel, start, end, text


def heard(messages: Sequence[RawMessage], at_once: bool = False) -> tuple[list[Utterance], Desk]:
    """The finals of a session of these messages and an end, by channel and time.

    `at_once`: all of them come before the model does anything.
    """
    desk = Desk([], speech=ModelSpeech())  # type: ignore[arg-type]
    for message in messages:
        desk.arrive(message)
        if not at_once:
            desk.speech.step()
    desk.arrive(control("c", "end"))
    desk.settle()
    finals = [
        (f["channel"], f["start"], f["end"], f["alternatives"][0]["transcript"])
        for f in desk.transcripts()
    ]
    return sorted(finals), desk


def of_side(utterances: Sequence[Utterance], channel: int) -> list[tuple[float, float, str]]:
    return [rest for side, *rest in utterances if side == channel]


def errors(side: Side, utterances: Sequence[tuple[float, float, str]]) -> float:
    """The word error rate of a side against what was said."""
    wer = Wer()
    wer.add(side.text, " ".join(text for _, _, text in utterances))
    return wer.rate
