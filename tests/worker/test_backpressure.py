"""Reading stops before memory fills and always goes on again."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lanes import Clock
from worker.backpressure import Backpressure


def pressure(high_s: float = 60, low_s: float = 20, min_pause_s: float = 1) -> Backpressure:
    return Backpressure(high_s, low_s, min_pause_s, Clock())


def clock_of(backpressure: Backpressure) -> Clock:
    clock = backpressure._now
    assert isinstance(clock, Clock)
    return clock


def test_below_the_high_mark_everything_is_read() -> None:
    assert pressure().update({0: 30, 1: 30}, True) == frozenset()


def test_above_it_those_that_hold_most_are_paused_until_the_rest_is_low() -> None:
    assert pressure().update({0: 5, 1: 40, 2: 14, 3: 12}, True) == {1, 2}


def test_of_equals_the_first_is_paused() -> None:
    assert pressure().update({0: 31, 1: 31}, True) == {0, 1}
    assert pressure(low_s=31).update({0: 31, 1: 31}, True) == {0}


def test_between_the_marks_nothing_changes() -> None:
    backpressure = pressure()
    backpressure.update({0: 61}, True)
    clock_of(backpressure).now += 100

    assert backpressure.update({0: 30}, True) == {0}


def test_below_the_low_mark_reading_goes_on_after_the_least_pause() -> None:
    backpressure = pressure(min_pause_s=1)
    backpressure.update({0: 61}, True)

    assert backpressure.update({0: 5}, True) == {0}
    clock_of(backpressure).now += 1
    assert backpressure.update({0: 5}, True) == frozenset()


def test_an_idle_engine_resumes_everything_at_once() -> None:
    backpressure = pressure(min_pause_s=1000)
    backpressure.update({0: 61, 1: 70}, True)

    assert backpressure.update({}, False) == frozenset()


def test_what_is_paused_already_does_not_pause_the_others() -> None:
    backpressure = pressure()
    backpressure.update({0: 70, 1: 5}, True)

    assert backpressure.update({0: 70, 1: 6}, True) == {0}


def test_a_partition_that_left_is_forgotten() -> None:
    backpressure = pressure()
    backpressure.update({0: 70}, True)
    backpressure.forget(0)
    backpressure.forget(5)

    assert backpressure.paused == frozenset()


@pytest.mark.parametrize("level", [0.0, 20.0])
def test_a_partition_at_rest_is_not_paused_and_resumed_in_turn(level: float) -> None:
    backpressure = pressure(min_pause_s=1)
    changes = 0
    before: frozenset[int] = frozenset()
    for _ in range(100):
        clock_of(backpressure).now += 0.01
        now = backpressure.update({0: 61 if not before else level}, True)
        changes += now != before
        before = now

    assert changes <= 3


class TinyEngine:
    """Streams of unit chunks: a stream is runnable with a full window or with its end."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.waiting_s: dict[tuple[int, int], float] = {}
        self.ended: set[tuple[int, int]] = set()

    def runnable(self) -> dict[tuple[int, int], float]:
        held = {}
        for stream, seconds in self.waiting_s.items():
            usable = seconds if stream in self.ended else seconds // self.window_s * self.window_s
            if usable or stream in self.ended:
                held[stream] = usable
        return held

    def step(self, slots: int) -> None:
        for stream in list(self.runnable())[:slots]:
            self.waiting_s[stream] -= min(self.window_s, self.waiting_s[stream])
            if stream in self.ended and not self.waiting_s[stream]:
                del self.waiting_s[stream]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 1 << 32),
    st.integers(1, 4),
    st.integers(1, 12),
    st.floats(0.5, 20),
    st.floats(0.01, 1),
    st.floats(0, 5),
)
def test_any_interleaving_with_any_limits_comes_to_its_end(
    seed: int,
    partitions: int,
    sessions: int,
    high_s: float,
    low_share: float,
    min_pause_s: float,
) -> None:
    rng = random.Random(seed)
    logs = {p: deque(interleaving(rng, sessions)) for p in range(partitions)}
    engine = TinyEngine(window_s=rng.choice([0.5, 0.64, 1.5]))
    clock = Clock()
    backpressure = Backpressure(high_s, high_s * low_share, min_pause_s, clock)

    for _ in range(20_000):
        held: dict[int, float] = {}
        for (partition, _), seconds in engine.runnable().items():
            held[partition] = held.get(partition, 0.0) + seconds
        paused = backpressure.update(held, bool(engine.runnable()))
        for partition, log in logs.items():
            if partition not in paused:
                read(log, partition, engine, rng.randint(1, 5))
        engine.step(slots=rng.randint(1, 3))
        clock.now += 0.02
        if not any(logs.values()) and not engine.waiting_s:
            return
    raise AssertionError("reading or decoding stands still")


def interleaving(rng: random.Random, sessions: int) -> list[tuple[int, bool]]:
    left = {session: rng.randint(1, 8) for session in range(sessions)}
    log = []
    while left:
        session = rng.choice(list(left))
        left[session] -= 1
        log.append((session, not left[session]))
        if not left[session]:
            del left[session]
    return log


def read(log: deque[tuple[int, bool]], partition: int, engine: TinyEngine, number: int) -> None:
    for _ in range(min(number, len(log))):
        session, last = log.popleft()
        stream = (partition, session)
        engine.waiting_s[stream] = engine.waiting_s.get(stream, 0.0) + 0.3
        if last:
            engine.ended.add(stream)
