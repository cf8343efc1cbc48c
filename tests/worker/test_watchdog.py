"""A partition that silently stopped is sought anew, then the worker is replaced."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lanes import Clock
from worker.producer import FatalClientError
from worker.watchdog import ASK_EVERY_S, LogEnds, Watchdog

LIMIT_S = 60.0


class FakeEnds:
    """A broker that answers at once, or never."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.asked: list[list[int]] = []
        self.silent = False
        self._answer: dict[int, int] | None = None

    def ask(self, numbers: Iterable[int]) -> None:
        self.asked.append(sorted(numbers))
        if not self.silent:
            self._answer = {n: self.ends[n] for n in self.asked[-1] if n in self.ends}

    def take(self) -> Mapping[int, int] | None:
        answer, self._answer = self._answer, None
        return answer


class Bench:
    """A watchdog over what the test says of positions."""

    def __init__(self) -> None:
        self.clock, self.ends = Clock(), FakeEnds()
        self.sought: list[tuple[int, int]] = []
        self.events: list[str] = []
        self.positions: dict[int, int] = {}
        self.dog = Watchdog("chunks", self.ends, self, self.clock, LIMIT_S)

    def stalled(self, event: str) -> None:
        self.events.append(event)

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.clock.now += 1
            if self.dog.is_due:
                self.dog.check(self.positions, lambda *place: self.sought.append(place))


def test_a_partition_that_stands_is_sought_at_its_position_and_then_ends_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7}, {3: 9}
    bench.run(LIMIT_S)
    assert bench.sought == []
    with caplog.at_level(logging.WARNING):
        bench.run(ASK_EVERY_S)

    assert bench.sought == [(3, 7)]
    assert "chunks/3: the log ends at 9" in caplog.text
    bench.run(LIMIT_S - ASK_EVERY_S)
    assert bench.sought == [(3, 7)]
    with pytest.raises(FatalClientError, match=r"chunks/3: the log ends at 9.*from 7"):
        bench.run(2 * ASK_EVERY_S)
    assert bench.events == ["sought", "given_up"]


def test_one_that_goes_on_after_the_seek_may_be_sought_again_later() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7}, {3: 9}
    bench.run(LIMIT_S + ASK_EVERY_S)
    bench.positions = {3: 8}
    bench.run(LIMIT_S + ASK_EVERY_S)

    assert bench.sought == [(3, 7), (3, 8)]


def test_a_quiet_partition_at_the_end_of_its_log_is_left_alone() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7}, {3: 7}
    bench.run(10 * LIMIT_S)

    assert bench.sought == []
    assert bench.ends.asked


def test_a_partition_that_moves_is_never_asked_about() -> None:
    bench = Bench()
    bench.ends.ends = {3: 1000}
    for at in range(200):
        bench.positions = {3: at}
        bench.run(1)

    assert bench.ends.asked == []


def test_a_pause_is_no_standstill() -> None:
    bench = Bench()
    bench.ends.ends = {3: 9}
    bench.positions = {3: 7}
    bench.run(LIMIT_S - 1)
    bench.positions = {}
    bench.run(10 * LIMIT_S)
    bench.positions = {3: 7}
    bench.run(LIMIT_S - 1)

    assert bench.sought == []


def test_a_log_that_is_shorter_than_the_position_ends_the_worker_without_a_seek() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7}, {3: 2}
    bench.run(2 * LIMIT_S - 1)

    with pytest.raises(FatalClientError, match="the log ends at 2"):
        bench.run(2 * ASK_EVERY_S)

    assert bench.sought == []
    assert bench.events == ["given_up"]


def test_a_new_leader_that_does_not_know_its_whole_log_yet_harms_nobody() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7}, {3: 2}
    bench.run(LIMIT_S + ASK_EVERY_S)
    bench.ends.ends = {3: 7}
    bench.run(10 * LIMIT_S)

    assert bench.events == []


def test_a_log_that_first_seemed_too_short_is_sought_like_any_other() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7}, {3: 2}
    bench.run(LIMIT_S + ASK_EVERY_S)
    bench.ends.ends = {3: 9}
    bench.run(LIMIT_S + ASK_EVERY_S)

    assert bench.sought == [(3, 7)]


def test_while_no_broker_answers_nothing_is_judged() -> None:
    bench = Bench()
    bench.positions, bench.ends.silent = {3: 7}, True
    bench.run(20 * LIMIT_S)

    assert bench.sought == []


def test_the_brokers_are_asked_now_and_then() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7, 4: 1}, {3: 7, 4: 1}
    bench.run(LIMIT_S + 5 * ASK_EVERY_S)

    assert 4 <= len(bench.ends.asked) <= 6
    assert bench.ends.asked[0] == [3, 4]


def test_an_answer_about_a_partition_that_left_or_moved_meanwhile_means_nothing() -> None:
    bench = Bench()
    bench.positions, bench.ends.ends = {3: 7, 4: 7}, {3: 9, 4: 9}
    while not bench.ends.asked:
        bench.run(1)
    bench.positions = {4: 8}
    bench.run(ASK_EVERY_S)

    assert bench.sought == []


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), min_size=1, max_size=20))
def test_whoever_moves_within_the_limit_is_never_sought(moves: list[tuple[int, int]]) -> None:
    bench = Bench()
    bench.ends.ends = {0: 10_000}
    at = 0
    stood = 0
    for step, seconds in moves:
        at, stood = at + step, (0 if step else stood)
        bench.positions = {0: at}
        for _ in range(seconds):
            bench.run(1)
            stood += 1
            if bench.sought:
                assert stood >= LIMIT_S
                return


class FakeAdmin:
    """An admin client whose answers come when the test says so."""

    def __init__(self) -> None:
        self.futures: dict[int, Future[Any]] = {}
        self.failing = False

    def list_offsets(self, places: Mapping[TopicPartition, Any], **_rest: Any) -> dict[Any, Any]:
        if self.failing:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.futures = {place.partition: Future() for place in places}
        return {place: self.futures[place.partition] for place in places}


class Info:
    def __init__(self, offset: int) -> None:
        self.offset = offset


def test_ends_are_known_once_every_partition_was_answered() -> None:
    admin = FakeAdmin()
    ends = LogEnds(admin, "chunks")
    assert ends.take() is None
    ends.ask([1, 2])
    admin.futures[1].set_result(Info(17))
    assert ends.take() is None
    admin.futures[2].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))

    assert ends.take() == {1: 17}
    assert ends.take() is None


def test_a_question_that_cannot_be_asked_is_none() -> None:
    admin = FakeAdmin()
    admin.failing = True
    ends = LogEnds(admin, "chunks")
    ends.ask([1])

    assert ends.take() is None
