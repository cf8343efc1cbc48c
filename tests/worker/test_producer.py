"""Finals, events and dead letters are sent until the broker has them; partials may be shed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.consumers import FakeMessage
from tests.support.lanes import Clock
from worker.messages import Kind, OutRecord
from worker.producer import RENEW_AFTER_S, RETRY_AFTER_S, FatalClientError, Sink

TOPICS = {kind: kind.value for kind in Kind}


class FakeProducer:
    """Takes records and reports on them when the test says so."""

    def __init__(self) -> None:
        self.room = 1000
        self.refusal: KafkaError | None = None
        self.produced: list[tuple[str, bytes | None, bytes]] = []
        self.headers: list[list[tuple[str, bytes]]] = []
        self.purged = False
        self._reports: list[Callable[[KafkaError | None, object], None]] = []
        self.outcomes: list[KafkaError | None] = []
        self.place = FakeMessage(4, 17)
        self.on_poll: Callable[[], None] = lambda: None

    def produce(self, topic: str, **arguments: Any) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        if len(self._reports) >= self.room:
            raise BufferError
        self.produced.append((topic, arguments["key"], arguments["value"]))
        self.headers.append(arguments["headers"])
        self._reports.append(arguments["on_delivery"])

    def poll(self, timeout_s: float) -> int:
        del timeout_s
        self.on_poll()
        while self.outcomes and self._reports:
            self._reports.pop(0)(self.outcomes.pop(0), self.place)
        return 0

    def purge(self) -> None:
        self.purged = True


class SinkCounts:
    def __init__(self) -> None:
        self.sent: list[Kind] = []
        self.errors: list[Kind] = []
        self.shed = 0

    def produced(self, kind: Kind) -> None:
        self.sent.append(kind)

    def produce_error(self, kind: Kind) -> None:
        self.errors.append(kind)

    def partial_shed(self) -> None:
        self.shed += 1


class Bench:
    """A sink between two fake producers."""

    def __init__(self) -> None:
        self.durable, self.partials = FakeProducer(), FakeProducer()
        self.dead: list[FakeProducer] = []
        self.counts, self.clock = SinkCounts(), Clock()
        self.acknowledged: list[bytes] = []
        self.sink = Sink(self.newest, self.newest_of_partials, TOPICS, self.counts, self.clock)

    def newest(self) -> FakeProducer:
        return self.durable

    def newest_of_partials(self) -> FakeProducer:
        return self.partials

    def bury(self) -> None:
        """The sink will be given another producer when it asks."""
        self.dead.append(self.durable)
        self.durable = FakeProducer()

    def send(self, kind: Kind, value: bytes = b"v") -> None:
        record = OutRecord(kind, b"k", value, (("h", b"1"),))
        self.sink.send(record, lambda: self.acknowledged.append(value))

    def report(self, *outcomes: KafkaError | None) -> None:
        self.durable.outcomes += outcomes
        self.sink.poll()


TRANSIENT = KafkaError(KafkaError._MSG_TIMED_OUT)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
FATAL = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
DURABLE = [Kind.FINAL, Kind.EVENT, Kind.DEAD_LETTER]


@pytest.mark.parametrize("kind", DURABLE)
def test_a_record_is_acknowledged_when_the_broker_has_it(kind: Kind) -> None:
    bench = Bench()
    bench.send(kind)
    assert (bench.acknowledged, bench.sink.unacknowledged) == ([], 1)

    bench.report(None)

    assert bench.durable.produced == [(kind.value, b"k", b"v")]
    assert bench.durable.headers == [[("h", b"1")]]
    assert (bench.acknowledged, bench.sink.unacknowledged) == ([b"v"], 0)
    assert bench.counts.sent == [kind]


def test_records_wait_in_their_order_while_the_queue_is_full() -> None:
    bench = Bench()
    bench.durable.room = 1
    for value in (b"1", b"2", b"3"):
        bench.send(Kind.FINAL, value)
    assert [value for *_, value in bench.durable.produced] == [b"1"]

    bench.report(None)
    bench.report(None)
    bench.report(None)

    assert bench.acknowledged == [b"1", b"2", b"3"]


def test_a_record_does_not_overtake_those_that_wait() -> None:
    bench = Bench()
    bench.durable.room = 0
    bench.send(Kind.FINAL, b"1")
    bench.durable.room = 9
    bench.send(Kind.FINAL, b"2")
    bench.sink.poll()

    assert [value for *_, value in bench.durable.produced] == [b"1", b"2"]


@pytest.mark.parametrize("kind", DURABLE)
def test_a_failed_delivery_is_sent_again_after_a_while(kind: Kind) -> None:
    bench = Bench()
    bench.send(kind)
    bench.report(TRANSIENT)
    assert bench.counts.errors == [kind]
    assert bench.sink.unacknowledged == 1

    bench.clock.now += RETRY_AFTER_S / 2
    bench.sink.poll()
    assert len(bench.durable.produced) == 1
    bench.clock.now += RETRY_AFTER_S
    bench.report()
    bench.report(None)

    assert bench.acknowledged == [b"v"]


def test_a_record_that_the_client_refuses_is_sent_again() -> None:
    bench = Bench()
    bench.durable.refusal = TRANSIENT
    bench.send(Kind.FINAL)
    bench.durable.refusal = None
    bench.clock.now += RETRY_AFTER_S
    bench.sink.poll()

    assert len(bench.durable.produced) == 1


def die(bench: Bench, when: str) -> None:
    """The producer tells of its death in one of its ways; another one is at hand."""
    doomed = bench.durable
    bench.bury()
    if when == "delivery":
        doomed.outcomes.append(FATAL)
    elif when == "produce":
        doomed.refusal = FATAL
        bench.send(Kind.FINAL, b"refused")
    else:

        def raise_it() -> None:
            raise KafkaException(FATAL)

        doomed.on_poll = raise_it


@pytest.mark.parametrize("when", ["delivery", "produce", "poll"])
def test_a_dead_producer_is_replaced_and_all_it_had_is_sent_again_in_order(when: str) -> None:
    bench = Bench()
    for value in (b"1", b"2", b"3"):
        bench.send(Kind.FINAL, value)
    bench.report(None)
    die(bench, when)
    bench.sink.poll()
    bench.sink.poll()

    more = [b"refused"] if when == "produce" else []
    assert [value for *_, value in bench.durable.produced] == [b"2", b"3", *more]
    bench.durable.outcomes += [None] * 3
    bench.sink.poll()
    assert bench.acknowledged == [b"1", b"2", b"3", *more]
    assert bench.sink.unacknowledged == 0


def test_a_late_report_of_a_dead_producer_changes_nothing() -> None:
    bench = Bench()
    bench.send(Kind.FINAL, b"1")
    late = bench.durable._reports[0]
    die(bench, "poll")
    bench.sink.poll()
    late(TRANSIENT, None)
    late(None, None)
    assert (bench.acknowledged, bench.counts.errors) == ([], [])

    bench.durable.outcomes.append(None)
    bench.sink.poll()
    assert bench.acknowledged == [b"1"]


@pytest.mark.parametrize("when", ["delivery", "produce", "poll"])
def test_a_second_death_soon_after_the_first_ends_the_worker(when: str) -> None:
    bench = Bench()
    bench.send(Kind.FINAL, b"1")
    die(bench, "poll")
    bench.sink.poll()
    bench.clock.now += RENEW_AFTER_S - 1
    die(bench, when)
    with pytest.raises(FatalClientError, match="fenced"):
        bench.sink.poll()


def test_a_second_death_long_after_the_first_is_survived() -> None:
    bench = Bench()
    bench.send(Kind.FINAL, b"1")
    for _ in range(2):
        die(bench, "poll")
        bench.sink.poll()
        bench.clock.now += RENEW_AFTER_S
    bench.durable.outcomes.append(None)
    bench.sink.poll()

    assert bench.acknowledged == [b"1"]


def test_a_dead_producer_of_partials_is_replaced_and_what_it_had_is_shed() -> None:
    bench = Bench()
    for _ in range(3):
        bench.send(Kind.PARTIAL)
    doomed = bench.partials
    doomed.outcomes.append(None)
    bench.sink.poll()

    def raise_it() -> None:
        raise KafkaException(FATAL)

    doomed.on_poll = raise_it
    bench.partials = FakeProducer()
    bench.sink.poll()
    assert (bench.counts.sent, bench.counts.shed) == ([Kind.PARTIAL], 2)

    doomed._reports[0](TRANSIENT, None)
    bench.send(Kind.PARTIAL)
    bench.partials.outcomes.append(None)
    bench.sink.poll()
    assert (bench.counts.sent, bench.counts.shed) == ([Kind.PARTIAL] * 2, 2)


def test_a_dead_letter_that_is_too_large_goes_without_its_value_and_says_so_once() -> None:
    bench = Bench()
    bench.send(Kind.DEAD_LETTER, b"large")
    for _ in range(2):
        bench.report(TOO_LARGE)
        bench.clock.now += RETRY_AFTER_S
        bench.report()
    bench.report(None)

    assert [value for *_, value in bench.durable.produced] == [b"large", b"", b""]
    assert bench.durable.headers[-1] == [("h", b"1"), ("value.dropped", b"true")]
    assert bench.acknowledged == [b"large"]


def test_a_final_that_is_too_large_keeps_its_value() -> None:
    bench = Bench()
    bench.send(Kind.FINAL, b"large")
    bench.report(TOO_LARGE)
    bench.clock.now += RETRY_AFTER_S
    bench.sink.poll()

    assert [value for *_, value in bench.durable.produced] == [b"large", b"large"]


@pytest.mark.parametrize("full", [True, False])
def test_partials_are_shed_when_there_is_no_room(full: bool) -> None:
    bench = Bench()
    if full:
        bench.partials.room = 0
    else:
        bench.partials.refusal = TRANSIENT
    bench.send(Kind.PARTIAL)
    bench.sink.poll()

    assert bench.counts.shed == 1
    assert bench.partials.produced == bench.durable.produced == []
    assert bench.sink.unacknowledged == 0


def test_a_partial_that_was_not_delivered_is_shed() -> None:
    bench = Bench()
    bench.send(Kind.PARTIAL)
    bench.send(Kind.PARTIAL)
    bench.partials.outcomes += [TRANSIENT, None]
    bench.sink.poll()

    assert bench.counts.shed == 1
    assert bench.counts.sent == [Kind.PARTIAL]
    assert bench.acknowledged == []


def test_a_flush_waits_for_what_is_outstanding() -> None:
    bench = Bench()
    bench.send(Kind.FINAL, b"1")
    bench.send(Kind.FINAL, b"2")

    def broker_answers() -> None:
        bench.clock.now += 0.1
        if bench.clock.now > 100.3:
            bench.durable.outcomes.append(None)

    bench.durable.on_poll = broker_answers

    assert bench.sink.flush(5.0)
    assert bench.acknowledged == [b"1", b"2"]


def test_a_flush_gives_up_after_its_time() -> None:
    bench = Bench()
    bench.send(Kind.FINAL)

    def time_passes() -> None:
        bench.clock.now += 0.1

    bench.durable.on_poll = time_passes

    assert not bench.sink.flush(1.0)
    assert bench.clock.now < 102


def test_a_flush_of_nothing_returns_at_once() -> None:
    assert Bench().sink.flush(0.0)


def test_closing_gives_up_the_partials() -> None:
    bench = Bench()
    bench.sink.close()

    assert bench.partials.purged
    assert not bench.durable.purged


class TestRecordsWhosePlaceMatters:
    """They are sent once; who sent them hears where they lie, or that they were not delivered."""

    def begun(self) -> tuple[Bench, list[tuple[int, int] | None]]:
        bench = Bench()
        places: list[tuple[int, int] | None] = []
        self.send(bench, places)
        return bench, places

    def send(self, bench: Bench, places: list[tuple[int, int] | None]) -> None:
        bench.sink.send_once(OutRecord(Kind.STATE, b"k", b"v", ()), places.append)

    def test_the_place_is_told_when_the_broker_has_it(self) -> None:
        bench, places = self.begun()
        assert places == []
        bench.report(None)

        assert bench.durable.produced == [("state", b"k", b"v")]
        assert places == [(4, 17)]
        assert bench.counts.sent == [Kind.STATE]

    def test_nobody_waits_for_it_at_a_hand_over(self) -> None:
        bench, _ = self.begun()

        assert bench.sink.unacknowledged == 0

    def test_a_failure_is_told_and_nothing_is_sent_again(self) -> None:
        bench, places = self.begun()
        bench.report(TRANSIENT)
        bench.clock.now += 2 * RETRY_AFTER_S
        bench.sink.poll()

        assert places == [None]
        assert len(bench.durable.produced) == 1
        assert bench.counts.errors == [Kind.STATE]

    def test_a_place_that_the_client_does_not_know_is_none(self) -> None:
        bench, places = self.begun()
        bench.durable.place = FakeMessage(4, -1001)
        bench.report(None)

        assert places == [None]

    def test_a_full_queue_and_a_refusal_are_told_at_once(self) -> None:
        bench = Bench()
        places: list[tuple[int, int] | None] = []
        bench.durable.room = 0
        self.send(bench, places)
        bench.durable.refusal = TRANSIENT
        self.send(bench, places)

        assert places == [None, None]
        assert bench.counts.errors == [Kind.STATE]

    @pytest.mark.parametrize("when", ["delivery", "poll"])
    def test_a_producer_that_dies_has_placed_nothing_and_says_so_once(self, when: str) -> None:
        bench, places = self.begun()
        late = bench.durable._reports[0]
        die(bench, when)
        bench.sink.poll()
        late(None, FakeMessage(4, 17))

        assert places == [None]
        assert bench.durable.produced == []


def test_a_record_that_is_refused_for_long_is_told_once_a_minute_with_its_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.durable.refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    bench.send(Kind.FINAL)
    for _ in range(100):
        bench.clock.now += RETRY_AFTER_S
        bench.sink.poll()
    first, second = (record.getMessage() for record in caplog.records)

    assert first == (
        "final record to final not delivered, will be sent again: "
        "Broker: Topic authorization failed"
    )
    assert second == f"{first} (59 more since the last line like this)"
    assert len(bench.counts.errors) == 101


def test_partials_that_are_refused_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.partials.refusal = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    for _ in range(90):
        bench.send(Kind.PARTIAL)
        bench.clock.now += 1.0
    bench.partials.refusal, bench.partials.room = None, 0
    bench.send(Kind.PARTIAL)

    reason = "partials to partial are dropped: Broker: Topic authorization failed"
    assert [record.getMessage() for record in caplog.records] == [
        reason,
        f"{reason} (59 more since the last line like this)",
        "partials to partial are dropped: the producer's queue is full",
    ]
    assert bench.counts.shed == 91


@pytest.mark.parametrize("code", [KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT])
def test_partials_that_are_given_up_at_the_end_are_no_line_in_the_log(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.send(Kind.PARTIAL)
    bench.partials.outcomes.append(KafkaError(code))
    bench.sink.close()

    assert caplog.records == []
    assert bench.counts.shed == 1
