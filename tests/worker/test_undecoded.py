"""The age of undecoded audio is the truth: it grows while the engine stalls, and idle is 0."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine import make_engine, tiny_model
from tests.support.lanes import Clock
from worker.recognizer import Recognizer
from worker.segments import MODEL_RATE, SegmentInfo
from worker.streams import MessageContext
from worker.undecoded import UndecodedAudio

SECOND = np.zeros(MODEL_RATE, np.float32)


class Call:
    """One live stream on a real engine of random weights."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.recognizer = Recognizer(make_engine(tiny_model()), self.clock)
        info = SegmentInfo(0, 0, 0, 8000, MessageContext.nothing(0), 0)
        segment = SimpleNamespace(info=info, receive=lambda _output: None)
        self.stream = self.recognizer.open(segment, 0, 3)  # type: ignore[arg-type]

    def hear(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.recognizer.feed(self.stream, SECOND, None, False)
            self.clock.now += 1

    def decode(self) -> None:
        while self.recognizer.has_work:
            self.recognizer.step()

    @property
    def age_s(self) -> float:
        return self.recognizer.undecoded_age_s()


def test_a_stalled_engine_s_audio_grows_old_with_the_clock() -> None:
    call = Call()
    call.hear()
    ages = []
    for _ in range(5):
        ages.append(call.age_s)
        call.clock.now += 10

    assert ages == [1, 11, 21, 31, 41]


def test_audio_that_comes_later_does_not_make_what_waits_younger() -> None:
    call = Call()
    call.hear(seconds=8)

    assert call.age_s == 8


def test_nothing_waits_once_everything_is_decoded() -> None:
    call = Call()
    call.hear(seconds=3)
    call.decode()
    call.clock.now += 1000

    assert call.age_s == 0


def test_a_stream_that_is_served_in_between_does_not_look_stalled() -> None:
    call = Call()
    ages = []
    for _ in range(6):
        call.hear()
        ages.append(call.age_s)  # there is work at every look, and each time it is newer work
        call.decode()

    assert max(ages) <= 2


def test_a_stream_that_has_ended_is_not_waited_for() -> None:
    call = Call()
    call.hear()
    call.recognizer.feed(call.stream, np.zeros(0, np.float32), None, True)
    call.decode()
    call.clock.now += 5
    call.recognizer.feed(call.stream, np.zeros(0, np.float32), None, False)

    assert call.age_s == 0


operations = st.lists(
    st.tuples(st.sampled_from(["feed", "decode", "look"]), st.integers(0, 40), st.integers(0, 3)),
    max_size=60,
)


@settings(deadline=None, max_examples=100)
@given(operations)
def test_the_age_is_that_of_the_first_undecoded_sample(steps: list[tuple[str, int, int]]) -> None:
    audio, now = UndecodedAudio(), 0.0
    audio.opened("a")
    arrived: list[float] = []  # of every sample that is not decoded
    for what, count, wait_s in steps:
        if what == "feed":
            audio.fed("a", count, now)
            arrived += [now] * count
        elif what == "decode":
            del arrived[:count]
        elif arrived:
            assert audio.age_s({"a": len(arrived)}, now) == now - arrived[0]
        now += wait_s


def test_many_small_arrivals_are_kept_in_little_memory() -> None:
    audio = UndecodedAudio()
    audio.opened("a")
    for n in range(6000):
        audio.fed("a", 16, n * 0.001)

    assert len(audio._streams["a"].marks) <= 120
    assert audio.age_s({"a": 6000 * 16}, 6.0) == pytest.approx(6.0)
    assert audio.age_s({"a": 16}, 6.0) <= 0.06
