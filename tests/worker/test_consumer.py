"""What the client says becomes batches, assignments and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError

from tests.support.consumers import FakeConsumer, FakeMessage, place
from worker.assignment import Start
from worker.commits import CommitResult
from worker.consumer import MAX_BATCH, Source, SourceOptions
from worker.producer import FatalClientError

EOF = KafkaError(KafkaError._PARTITION_EOF)


class Assignee:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.failing = False

    def assigned(self, starts: Sequence[Start]) -> None:
        self.told.append(("assigned", list(starts)))

    def revoked(self, partitions: Sequence[int]) -> None:
        self.told.append(("revoked", list(partitions)))
        if self.failing:
            raise FatalClientError("producer: fenced")

    def lost(self, partitions: Sequence[int]) -> None:
        self.told.append(("lost", list(partitions)))

    def commit_answered(self, partition: int, result: CommitResult) -> None:
        self.told.append((partition, result))


class Bench:
    """A source on a fake client."""

    def __init__(self, policy: str = "earliest", watchdog: Dog | None = None) -> None:
        self.assignee = Assignee()
        options = SourceOptions(
            {"group.id": "g"},
            "t",
            policy,
            lambda _error: None,
            SimpleNamespace(list_topics=lambda topic, **how: self.client.list_topics(topic, **how)),
            watchdog,  # type: ignore[arg-type]
        )
        with patch("worker.consumer.Consumer", FakeConsumer):
            self.source = Source(options, self.assignee)
        self.client: FakeConsumer = self.source._consumer  # type: ignore[assignment]

    def call(self, name: str, *partitions: int) -> None:
        self.client.callbacks[name](self.client, [place("t", p) for p in partitions])

    def answer(self, error: KafkaError | None, *partitions: object) -> None:
        self.client.properties["on_commit"](error, list(partitions))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_asks_for_the_ends_of_logs_and_subscribes(bench: Bench) -> None:
    assert bench.client.properties["enable.partition.eof"] is True
    assert bench.client.properties["group.id"] == "g"
    assert bench.client.calls == [("subscribe", ["t"])]
    assert not bench.source.joined


class TestPoll:
    def test_it_waits_for_the_first_message_alone(self, bench: Bench) -> None:
        bench.client.fetched = [FakeMessage(0, 4), FakeMessage(1, 9)]

        batch = bench.source.poll(0.02)

        assert [(m.partition, m.offset) for m in batch.messages] == [(0, 4), (1, 9)]
        assert bench.client.calls[1:] == [("poll", 0.02), ("consume", (MAX_BATCH - 1, 0))]

    def test_nothing_is_an_empty_batch(self, bench: Bench) -> None:
        batch = bench.source.poll(0)

        assert (batch.messages, batch.ended) == ([], frozenset())

    def test_a_message_is_plain_data(self, bench: Bench) -> None:
        bench.client.fetched = [
            FakeMessage(2, 7, key=None, value=None, headers=[("a", None)], timestamp_ms=-1)
        ]

        (raw,) = bench.source.poll(0).messages

        assert (raw.topic, raw.partition, raw.offset, raw.timestamp_ms) == ("t", 2, 7, 0)
        assert (raw.key, raw.value, raw.headers) == (None, None, (("a", None),))

    def test_a_message_whose_headers_the_client_cannot_read_is_told(self, bench: Bench) -> None:
        class Unreadable(FakeMessage):
            def headers(self) -> object:
                raise SystemError("returned a result with an exception set")

        bench.client.fetched = [Unreadable(2, 7), FakeMessage(2, 8)]

        unreadable, after = bench.source.poll(0).messages

        assert (unreadable.headers, unreadable.headers_readable) == ((), False)
        assert after.headers_readable

    def test_the_end_of_a_log_holds_for_the_whole_batch(self, bench: Bench) -> None:
        bench.client.fetched = [
            FakeMessage(0, 1),
            FakeMessage(0, error=EOF),
            FakeMessage(1, error=EOF),
            FakeMessage(1, 8),
        ]

        batch = bench.source.poll(0)

        assert batch.ended == {0}  # on partition 1, something came behind it
        assert len(batch.messages) == 2

    def test_an_end_may_come_alone(self, bench: Bench) -> None:
        bench.client.fetched = [FakeMessage(0, error=EOF)]

        assert bench.source.poll(0).ended == {0}

    def test_the_last_message_that_the_broker_has_is_the_end_too(self, bench: Bench) -> None:
        bench.client.logs = {0: (0, 9), 1: (0, 10)}
        bench.client.fetched = [FakeMessage(0, 8), FakeMessage(1, 8)]

        assert bench.source.poll(0).ended == {0}

    def test_passing_errors_are_logged(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.client.fetched = [
            FakeMessage(0, error=KafkaError(KafkaError._ALL_BROKERS_DOWN)),
            FakeMessage(0, 3),
        ]

        assert len(bench.source.poll(0).messages) == 1
        assert "consumer of t" in caplog.text

    @pytest.mark.parametrize(
        "error",
        [
            KafkaError(KafkaError._FATAL, "dead", fatal=True),
            # as the client tells that its static name is still in use
            KafkaError(KafkaError._FATAL, "Fatal error: the instance ID is still used"),
            KafkaError(KafkaError._AUTO_OFFSET_RESET),
            KafkaError(KafkaError.OFFSET_OUT_OF_RANGE),
        ],
    )
    def test_errors_that_would_skip_messages_end_the_worker(
        self, bench: Bench, error: KafkaError
    ) -> None:
        bench.client.fetched = [FakeMessage(0, error=error)]

        with pytest.raises(FatalClientError):
            bench.source.poll(0)

    def test_a_message_without_a_place_ends_the_worker(self, bench: Bench) -> None:
        bench.client.fetched = [FakeMessage(0, 3, topic=None)]

        with pytest.raises(FatalClientError, match="without a place"):
            bench.source.poll(0)


class TestAssignment:
    def test_partitions_are_read_from_where_the_group_stands(self, bench: Bench) -> None:
        bench.client.logs = {0: (0, 9), 1: (0, 9)}
        bench.client.commits = {0: (4, "map")}

        bench.call("on_assign", 0, 1)

        assert bench.source.joined
        assert bench.client.calls[-1] == ("assign", [(0, 4), (1, 0)])
        assert bench.assignee.told == [("assigned", [Start(0, 4, "map"), Start(1, 0, None)])]

    def test_an_empty_assignment_is_one(self, bench: Bench) -> None:
        bench.call("on_assign")

        assert bench.source.joined
        assert bench.assignee.told == [("assigned", [])]

    def test_one_that_fails_ends_the_worker_at_the_next_poll(self) -> None:
        bench = Bench("error")
        bench.client.logs = {0: (0, 9)}
        bench.call("on_assign", 0)

        with pytest.raises(FatalClientError, match="no commit"):
            bench.source.poll(0)
        assert bench.assignee.told == []

    @pytest.mark.parametrize("name", ["revoked", "lost"])
    def test_partitions_that_leave_are_told_of_and_not_paused_any_more(
        self, bench: Bench, name: str
    ) -> None:
        bench.client.logs = dict.fromkeys(range(2), (0, 9))
        bench.call("on_assign", 0, 1)
        bench.source.pause([0, 1])

        bench.call("on_revoke" if name == "revoked" else "on_lost", 1)

        assert bench.assignee.told[-1] == (name, [1])
        assert bench.client.calls[-1] == ("unassign", [1])
        assert bench.source.paused == {0}

    def test_a_partition_that_comes_back_is_not_paused(self, bench: Bench) -> None:
        bench.client.logs = {0: (0, 9)}
        bench.call("on_assign", 0)
        bench.source.pause([0])
        bench.call("on_assign", 0)

        assert bench.source.paused == frozenset()

    def test_a_failure_on_revocation_does_not_leave_the_callback(self, bench: Bench) -> None:
        bench.assignee.failing = True
        bench.call("on_revoke", 0)

        assert bench.client.calls[-1] == ("unassign", [0])
        with pytest.raises(FatalClientError, match="fenced"):
            bench.source.poll(0)

    def test_an_unassign_that_fails_is_logged(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.client.refusal = KafkaError(KafkaError._STATE)
        bench.call("on_lost", 0)

        assert "unassign" in caplog.text


MEANINGS = {
    KafkaError.OFFSET_METADATA_TOO_LARGE: CommitResult.TOO_LARGE,
    KafkaError.UNKNOWN_MEMBER_ID: CommitResult.LOST,
    KafkaError.FENCED_MEMBER_EPOCH: CommitResult.LOST,
    KafkaError.FENCED_INSTANCE_ID: CommitResult.FATAL,
    # A commit that meets a rebalance; the partition may be ours before and after.
    KafkaError.ILLEGAL_GENERATION: CommitResult.RETRY,
    KafkaError.STALE_MEMBER_EPOCH: CommitResult.RETRY,
    KafkaError.REBALANCE_IN_PROGRESS: CommitResult.RETRY,
    KafkaError.NOT_COORDINATOR: CommitResult.RETRY,
    KafkaError.REQUEST_TIMED_OUT: CommitResult.RETRY,
    KafkaError._TRANSPORT: CommitResult.RETRY,
}


class TestCommits:
    def test_a_commit_carries_its_metadata(self, bench: Bench) -> None:
        bench.source.commit(3, 12, "map")

        assert bench.client.calls[-1] == ("commit", (3, 12, "map"))

    def test_an_answer_without_an_error_is_done(self, bench: Bench) -> None:
        bench.answer(None, place("t", 3, 12), place("t", 4, 1))

        assert bench.assignee.told == [(3, CommitResult.DONE), (4, CommitResult.DONE)]

    @pytest.mark.parametrize("code", MEANINGS)
    @pytest.mark.parametrize("of", ["partition", "request", "call"])
    def test_what_an_error_means(self, bench: Bench, code: int, of: str) -> None:
        error = KafkaError(code)
        if of == "call":
            bench.client.refusal = error
            bench.source.commit(3, 12, "map")
        elif of == "partition":
            bench.answer(None, place("t", 3, 12, error=error))
        else:
            bench.answer(error, place("t", 3, 12))

        assert bench.assignee.told == [(3, MEANINGS[code])]

    def test_a_fatal_answer_ends_the_worker_at_the_next_poll(self, bench: Bench) -> None:
        bench.answer(KafkaError(KafkaError.FENCED_INSTANCE_ID), place("t", 3, 12))

        with pytest.raises(FatalClientError):
            bench.source.poll(0)

    def test_any_fatal_error_is_one(self, bench: Bench) -> None:
        bench.answer(KafkaError(KafkaError._FATAL, "x", fatal=True), place("t", 3, 12))

        assert bench.assignee.told == [(3, CommitResult.FATAL)]


class TestPauses:
    def test_only_what_changes_is_told_to_the_client(self, bench: Bench) -> None:
        bench.source.pause([0, 1])
        bench.source.pause([1, 2])
        bench.source.resume([0, 5])

        assert bench.client.calls[1:] == [("pause", [0, 1]), ("pause", [2]), ("resume", [0])]
        assert bench.source.paused == {1, 2}

    def test_nothing_to_do_is_nothing(self, bench: Bench) -> None:
        bench.source.pause([])
        bench.source.resume([4])

        assert bench.client.calls == [("subscribe", ["t"])]


def test_the_lag_counts_from_the_position(bench: Bench) -> None:
    bench.client.logs = {0: (0, 30)}

    assert bench.source.lag(0, 21) == 9
    assert bench.source.lag(0, 31) == 0
    assert bench.source.lag(1, 0) is None


def test_the_lag_on_a_partition_that_is_gone_is_not_known(bench: Bench) -> None:
    bench.client.refusal = KafkaError(KafkaError._UNKNOWN_PARTITION)

    assert bench.source.lag(0, 0) is None


def test_closing_leaves_the_group(bench: Bench) -> None:
    bench.source.close()

    assert bench.client.calls[-1] == ("close", None)


def test_a_client_that_is_out_of_the_group_has_no_proof_that_it_is_in_it(bench: Bench) -> None:
    assert bench.source.member() == "member"

    bench.client.membership = None

    assert bench.source.member() is None


class Dog:
    """A watchdog that writes down what it is shown, and seeks what the test says."""

    is_due = True

    def __init__(self) -> None:
        self.shown: list[dict[int, int]] = []
        self.sought: tuple[int, int] | None = None

    def check(self, positions: Mapping[int, int], seek: Callable[[int, int], None]) -> None:
        self.shown.append(dict(positions))
        if self.sought is not None:
            seek(*self.sought)


def test_the_watchdog_sees_the_next_offset_of_what_is_read() -> None:
    dog = Dog()
    bench = Bench(watchdog=dog)
    bench.client.commits = {1: (5, ""), 2: (6, "")}
    bench.client.logs = {1: (0, 20), 2: (0, 20)}
    bench.call("on_assign", 1, 2)
    bench.source.poll(0)
    bench.client.fetched = [FakeMessage(1, 8), FakeMessage(9, 8)]  # the other has just left
    bench.source.poll(0)
    bench.client.fetched = [FakeMessage(1, 11, EOF)]
    bench.source.poll(0)
    bench.source.pause([2])
    bench.source.poll(0)
    bench.call("on_revoke", 1)
    bench.source.resume([2])
    bench.source.poll(0)

    assert dog.shown == [{1: 5, 2: 6}, {1: 9, 2: 6}, {1: 11, 2: 6}, {1: 11}, {2: 6}]


def test_a_seek_of_the_watchdog_reaches_the_client() -> None:
    dog = Dog()
    bench = Bench(watchdog=dog)
    dog.sought = (1, 5)
    bench.source.poll(0)
    bench.client.refusal = KafkaError(KafkaError._STATE)
    bench.source.poll(0)  # it has just left: nothing happens

    assert bench.client.calls.count(("seek", (1, 5))) == 1
