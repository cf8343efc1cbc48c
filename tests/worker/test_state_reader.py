"""A state record is looked for until it is there or proved gone, and nothing waits for it."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.consumers import FakeMessage
from tests.support.lanes import Clock
from worker.state_reader import ATTEMPT_S, ENDED_FOR_S, StateReader, Wanted
from worker.state_reference import StateReference, reference_to

VALUE = b"oasr1:AAAA"
REFERENCE = reference_to(VALUE, 2, 10)


class FakeClient:
    """A client that is assigned places and delivers what the test lays out."""

    def __init__(self) -> None:
        self.assigned: list[tuple[int, int]] = []
        self.unassigned = 0
        self.fetched: list[FakeMessage] = []
        self.refusal: KafkaError | None = None
        self.closed = False

    def assign(self, places: list[TopicPartition]) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        self.assigned += [(place.partition, place.offset) for place in places]

    def unassign(self) -> None:
        self.unassigned += 1
        self.fetched.clear()

    def poll(self, timeout_s: float) -> FakeMessage | None:
        assert timeout_s == 0
        return self.fetched.pop(0) if self.fetched else None

    def close(self) -> None:
        self.closed = True


class Bench:
    """A reader, its client and what it told."""

    def __init__(self) -> None:
        self.client, self.clock = FakeClient(), Clock()
        self.opened = 0
        self.results: list[str] = []
        self.told: list[bytes | None] = []
        self.reader = StateReader("state", self._open, self, self.clock)  # type: ignore[arg-type]

    def _open(self) -> FakeClient:
        self.opened += 1
        return self.client

    def state_read(self, result: str) -> None:
        self.results.append(result)

    def look_for(self, reference: StateReference = REFERENCE) -> Wanted:
        wanted = self.reader.read(reference, self.told.append)
        self.reader.poll()
        return wanted

    def hear(self, *messages: FakeMessage, after_s: float = 0) -> None:
        self.clock.now += after_s
        self.client.fetched += messages
        self.reader.poll()


def record(offset: int = 10, value: bytes = VALUE, partition: int = 2) -> FakeMessage:
    return FakeMessage(partition, offset, value=value)


def end(offset: int) -> FakeMessage:
    return FakeMessage(2, offset, KafkaError(KafkaError._PARTITION_EOF))


def test_no_client_is_made_before_somebody_asks() -> None:
    bench = Bench()
    bench.reader.poll()
    bench.reader.close()

    assert bench.opened == 0


def test_the_record_at_the_place_is_told() -> None:
    bench = Bench()
    bench.look_for()
    bench.hear()
    assert bench.told == []

    bench.hear(record())

    assert bench.client.assigned == [(2, 10)]
    assert (bench.told, bench.results) == ([VALUE], ["found"])
    assert bench.client.unassigned == 1
    bench.hear(record())
    assert bench.told == [VALUE]


@pytest.mark.parametrize(
    "heard",
    [record(11), record(10, b"another"), end(11)],
    ids=["the log starts above", "another record", "nothing is left"],
)
def test_a_record_that_is_proved_gone_is_told_as_such(heard: FakeMessage) -> None:
    bench = Bench()
    bench.look_for()
    bench.hear(heard)

    assert (bench.told, bench.results) == ([None], ["gone"])


@pytest.mark.parametrize("heard", [end(10), end(0), record(3)], ids=["at it", "empty", "anew"])
def test_a_log_that_ends_before_it_proves_nothing_until_it_has_done_so_for_long(
    heard: FakeMessage,
) -> None:
    bench = Bench()
    bench.look_for()
    bench.hear(heard)
    bench.hear(heard, after_s=ENDED_FOR_S - 1)
    assert bench.told == []

    bench.hear(heard, after_s=1)

    assert bench.told == [None]


def test_a_record_that_comes_after_the_end_was_heard_is_taken() -> None:
    bench = Bench()
    bench.look_for()
    bench.hear(end(10))
    bench.hear(record(), after_s=5)

    assert bench.told == [VALUE]


def test_a_question_without_an_answer_is_asked_again_and_complained_of_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.look_for()
    with caplog.at_level(logging.WARNING):
        bench.hear(after_s=ATTEMPT_S - 0.1)
        assert bench.results == []
        bench.hear(after_s=0.1)
        bench.hear(after_s=ATTEMPT_S)
    assert bench.client.assigned == [(2, 10)] * 3
    assert bench.results == ["retried", "retried"]
    assert len(caplog.records) == 1

    bench.hear(record())
    assert bench.told == [VALUE]


def test_errors_of_the_client_are_no_answer() -> None:
    bench = Bench()
    bench.client.refusal = KafkaError(KafkaError._STATE)
    bench.look_for()
    bench.client.refusal = None
    missing = FakeMessage(2, -1001, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    bench.hear(missing, after_s=ATTEMPT_S)
    bench.hear(missing, after_s=10 * ENDED_FOR_S)
    assert bench.told == []

    bench.hear(record())
    assert bench.told == [VALUE]


def test_records_are_read_one_after_another_by_one_client() -> None:
    bench = Bench()
    bench.look_for()
    bench.look_for(reference_to(b"b", 4, 1))
    assert bench.client.assigned == [(2, 10)]

    bench.hear(record())
    bench.hear(record(99))  # of the former partition
    bench.hear(record(1, b"b", partition=4))

    assert bench.told == [VALUE, b"b"]
    assert bench.client.assigned == [(2, 10), (4, 1)]
    assert bench.opened == 1


def test_what_nobody_wants_any_more_is_not_waited_for() -> None:
    bench = Bench()
    wanted = bench.look_for()
    bench.look_for(reference_to(b"b", 4, 1))
    wanted.cancel()
    bench.hear(record())
    bench.hear(record(1, b"b", partition=4))

    assert bench.told == [b"b"]


def test_closing_asks_nothing_more() -> None:
    bench = Bench()
    bench.look_for()
    bench.reader.close()
    bench.hear(record())

    assert bench.client.closed
    assert bench.told == []
