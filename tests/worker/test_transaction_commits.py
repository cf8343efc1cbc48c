"""What goes into a transaction, when, and what follows from its outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.lanes import Clock, FakePartition
from tests.support.transaction_desk import FakePort, TransactionCounts
from worker.commits import HEALTHY_S, ISOLATED_FROM, Commit, CommitResult
from worker.messages import Kind, OutRecord
from worker.producer import FatalClientError
from worker.transaction_commits import (
    REFUSED_FOR_S,
    RETRY_AFTER_S,
    REVOKE_S,
    TransactionCommitter,
    TransactionTools,
)
from worker.transaction_outbox import MOST_RECORDS, Tenure
from worker.transactions import Answer, Outcome, Transaction

DONE = Answer(Outcome.COMMITTED)


class Bench:
    """A committer of two partitions, before a port that answers when the test says so."""

    def __init__(self) -> None:
        self.clock, self.counts, self.port = Clock(), TransactionCounts(), FakePort()
        self.partials: list[OutRecord] = []
        self.settled: list[float] = []
        self.heard: list[tuple[int, CommitResult]] = []
        self.generation: int | None = 1  # None: not a member
        self.committer = TransactionCommitter(
            TransactionTools(
                port=self.port,
                send_partial=self.partials.append,
                settled=lambda: self.settled.append(self.clock.now),
                counters=self.counts,
                now=self.clock,
                interval_s=0.125,
                commit_interval_s=1.0,
                smaller=lambda record: replace(record, value=b"small"),
            ),
            lambda: self.generation,
            lambda number, result: self.heard.append((number, result)),
        )
        self.partitions = [self.assign(number) for number in (0, 1)]
        self.tick()
        self.answer(DONE)
        self.port.submitted.clear()

    def assign(self, number: int, first: Commit | None = None) -> tuple[FakePartition, Tenure]:
        partition = FakePartition(number, offset=10 * number)
        tenure = self.committer.outbox(number)
        self.committer.begin(partition, first)
        return partition, tenure

    def send(self, number: int, value: bytes = b"v", kind: Kind = Kind.FINAL) -> None:
        """A record whose acknowledgement moves its partition, as they do."""
        partition, tenure = self.partitions[number]

        def acknowledged() -> None:
            partition.offset += 1

        tenure.send(OutRecord(kind, b"k", value, ()), acknowledged)

    def tick(self, after_s: float = 0.125) -> Transaction | None:
        """What is submitted when so much time has passed."""
        self.clock.now += after_s
        before = len(self.port.submitted)
        self.committer.tick()
        sent = self.port.submitted[before:]
        assert len(sent) <= 1
        return sent[0] if sent else None

    def answer(self, answer: Answer) -> None:
        """The outcome becomes known."""
        self.port.in_flight = None
        self.port.answers.append(answer)
        self.committer._take_answer(0)

    def last(self) -> Transaction:
        return self.port.submitted[-1]


def values(transaction: Transaction | None) -> list[bytes]:
    return [] if transaction is None else [record.value for record in transaction.records]


def offsets(transaction: Transaction | None) -> dict[int, int]:
    positions = () if transaction is None else transaction.positions
    return {p.place.partition: p.place.committed_offset for p in positions}


def test_records_go_with_the_position_that_counts_them_as_done() -> None:
    bench = Bench()
    bench.send(0, b"1")
    bench.send(0, b"2")

    sent = bench.tick()

    assert values(sent) == [b"1", b"2"]
    assert offsets(sent) == {0: 2}
    assert sent is not None
    assert sent.member == 1
    assert [(p.metadata, p.moved) for p in sent.positions] == [("map", True)]


def test_a_record_that_comes_alone_goes_at_once_and_the_next_waits_for_the_interval() -> None:
    bench = Bench()
    bench.clock.now += 0.5
    bench.send(0, b"1")
    assert values(bench.tick(0)) == [b"1"]
    bench.answer(DONE)
    bench.send(0, b"2")

    assert bench.tick(0.0625) is None
    assert values(bench.tick(0.0625)) == [b"2"]


def test_a_full_batch_does_not_wait_for_the_interval_and_the_rest_is_not_counted() -> None:
    bench = Bench()
    bench.send(0, b"1")
    bench.tick()
    bench.answer(DONE)
    for _ in range(MOST_RECORDS + 3):
        bench.send(0)

    sent = bench.tick(0)

    assert len(values(sent)) == MOST_RECORDS
    assert offsets(sent) == {0: 1 + MOST_RECORDS}


def test_events_of_one_message_are_not_parted_by_a_full_batch() -> None:
    bench = Bench()
    for _ in range(MOST_RECORDS - 1):
        bench.send(0)
    for _ in range(2):
        bench.send(0, kind=Kind.EVENT)
    bench.send(0)

    assert len(values(bench.tick())) == MOST_RECORDS + 1


def test_nothing_is_sent_while_a_transaction_is_on_its_way() -> None:
    bench = Bench()
    bench.send(0, b"1")
    bench.tick()
    bench.send(0, b"2")
    bench.send(1, b"3")

    assert bench.tick(60) is None
    assert bench.committer.unacknowledged == 3
    bench.answer(DONE)
    sent = bench.tick(0)
    assert values(sent) == [b"2", b"3"]
    assert offsets(sent) == {0: 2, 1: 11}


def test_what_an_acknowledgement_causes_joins_the_batch() -> None:
    bench = Bench()
    _, tenure = bench.partitions[0]
    tenure.send(OutRecord(Kind.FINAL, b"k", b"last", ()), lambda: bench.send(0, b"ended"))

    sent = bench.tick()

    assert values(sent) == [b"last", b"ended"]
    assert offsets(sent) == {0: 1}


def test_a_partition_with_records_has_its_position_in_it_moved_or_not() -> None:
    bench = Bench()
    _, tenure = bench.partitions[1]
    tenure.send(OutRecord(Kind.EVENT, b"k", b"v", ()), None)

    sent = bench.tick()

    assert offsets(sent) == {1: 10}
    assert sent is not None
    assert not sent.positions[0].moved


def test_a_partition_without_records_is_committed_at_its_own_interval_if_it_moved() -> None:
    bench = Bench()
    bench.partitions[0][0].offset = 5

    assert bench.tick(0.5) is None
    sent = bench.tick(0.5)
    assert (values(sent), offsets(sent)) == ([], {0: 5})
    bench.answer(DONE)
    assert bench.tick(60) is None


def test_partials_go_at_once_and_outside() -> None:
    bench = Bench()
    bench.send(0, b"partial", Kind.PARTIAL)

    assert [record.value for record in bench.partials] == [b"partial"]
    assert bench.tick() is None


def test_a_commit_is_told_when_its_transaction_is_committed() -> None:
    bench = Bench()
    partition, _ = bench.partitions[0]
    partition.done.clear()
    bench.send(0)
    bench.tick()
    assert partition.done == []

    bench.answer(DONE)

    assert partition.done == [(1, "map")]
    assert bench.counts.sent[-1:] == [Kind.FINAL]
    assert bench.settled[-1] == bench.clock.now
    assert bench.counts.outcomes[-1] == "committed"


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.REFUSED])
def test_an_aborted_transaction_goes_out_again_with_fresh_proof_and_newer_maps(
    outcome: Outcome,
) -> None:
    bench = Bench()
    bench.send(0, b"1")
    bench.tick()
    bench.answer(Answer(outcome, "why"))
    bench.partitions[0][0].metadata = "newer"
    bench.generation = 2
    bench.send(1, b"later")

    assert bench.tick(RETRY_AFTER_S / 2) is None
    sent = bench.tick(RETRY_AFTER_S / 2)

    assert values(sent) == [b"1"]
    assert offsets(sent) == {0: 1}
    assert sent is not None
    assert (sent.member, sent.positions[0].metadata) == (2, "newer")
    bench.answer(DONE)
    assert values(bench.tick()) == [b"later"]
    assert bench.counts.commits[-2:] == [(0, "retry"), (0, "done")]


def test_what_was_aborted_does_not_go_out_again_for_a_partition_that_left() -> None:
    bench = Bench()
    bench.send(0, b"gone")
    bench.send(1, b"ours")
    bench.tick()
    bench.committer.end(bench.partitions[0][0])
    bench.answer(Answer(Outcome.ABORTED))

    sent = bench.tick(RETRY_AFTER_S)

    assert values(sent) == [b"ours"]
    assert offsets(sent) == {1: 11}


def test_nor_for_one_that_came_back() -> None:
    bench = Bench()
    bench.send(0, b"of before")
    bench.tick()
    bench.committer.end(bench.partitions[0][0])
    bench.partitions[0] = bench.assign(0)
    bench.answer(Answer(Outcome.ABORTED))
    bench.send(0, b"of now")

    sent = bench.tick(RETRY_AFTER_S)
    bench.answer(DONE)

    assert values(sent) == []
    assert values(bench.tick()) == [b"of now"]


def test_a_partition_that_left_sends_nothing_more() -> None:
    bench = Bench()
    bench.send(0, b"queued")
    bench.committer.end(bench.partitions[0][0])
    bench.send(0, b"late")

    assert bench.tick(5) is None
    assert bench.committer.unacknowledged == 0


def test_the_answer_to_a_transaction_of_a_former_assignment_changes_nothing() -> None:
    bench = Bench()
    partition, _ = bench.partitions[0]
    partition.done.clear()
    bench.send(0)
    bench.tick()
    bench.committer.end(partition)
    heir, _ = bench.assign(0)
    bench.answer(DONE)

    assert partition.done == heir.done == []
    assert offsets(bench.tick(1)) == {0: 0}


def test_a_member_in_an_old_generation_waits_for_its_new_one_but_not_for_ever() -> None:
    bench = Bench()
    bench.send(0)
    bench.send(1)
    bench.tick()
    began = bench.clock.now
    while bench.clock.now - began < REFUSED_FOR_S:
        bench.answer(Answer(Outcome.REFUSED))
        assert CommitResult.LOST not in dict(bench.heard).values()
        bench.tick(RETRY_AFTER_S)
    bench.clock.now += RETRY_AFTER_S
    bench.answer(Answer(Outcome.REFUSED))

    assert bench.heard[-2:] == [(0, CommitResult.LOST), (1, CommitResult.LOST)]


def test_refusals_with_a_commit_between_them_are_not_added_up() -> None:
    bench = Bench()
    for _ in range(3):
        bench.send(0)
        bench.tick()
        bench.answer(Answer(Outcome.REFUSED))
        bench.tick(RETRY_AFTER_S)
        bench.answer(DONE)
        bench.clock.now += REFUSED_FOR_S

    assert CommitResult.LOST not in dict(bench.heard).values()


def test_a_client_that_has_left_the_group_hands_over_without_a_transaction() -> None:
    bench = Bench()
    bench.send(0)
    bench.generation = None

    bench.committer.hand_over([partition for partition, _ in bench.partitions])

    assert bench.port.submitted == []
    assert bench.tick(10) is None


def test_a_member_that_the_group_does_not_know_has_lost_what_it_sent_for() -> None:
    bench = Bench()
    bench.send(0)
    bench.tick()
    bench.answer(Answer(Outcome.EVICTED))
    bench.partitions[0][0].alive = False  # what a lane does on hearing it
    bench.send(0, b"late")

    assert bench.heard == [(0, CommitResult.LOST)]
    assert bench.tick(5) is None


def test_a_port_that_cannot_go_on_ends_the_worker() -> None:
    bench = Bench()
    bench.send(0)
    bench.tick()
    bench.port.answers.append(Answer(Outcome.FATAL, "not authorized"))

    with pytest.raises(FatalClientError, match="not authorized"):
        bench.tick()


def test_what_is_too_large_is_replaced_by_something_smaller() -> None:
    bench = Bench()
    bench.send(0, b"1")
    bench.send(0, b"too large", Kind.DEAD_LETTER)
    bench.tick()
    bench.answer(Answer(Outcome.ABORTED, "too large", frozenset({1})))

    assert values(bench.tick(RETRY_AFTER_S)) == [b"1", b"small"]
    assert bench.counts.errors == [Kind.DEAD_LETTER]


class TestBeginning:
    """An owner begins with the acknowledgement of the commit that counts it."""

    def test_nothing_else_of_a_partition_is_committed_before_its_first_commit(self) -> None:
        bench = Bench()
        begun: list[bool] = []
        partition, _ = bench.assign(2, Commit(20, "counted", lambda: begun.append(True)))
        partition.prepared = 0

        sent = bench.tick(0)
        assert offsets(sent) == {2: 20}
        assert bench.committer.not_begun == {2}
        assert bench.tick(5) is None
        bench.answer(DONE)

        assert (begun, bench.committer.not_begun, partition.prepared) == ([True], frozenset(), 0)
        assert offsets(bench.tick(1)) == {2: 20}

    def test_a_first_commit_proves_nothing_of_its_transaction(self) -> None:
        bench = Bench()
        bench.assign(2, Commit(20, "counted", lambda: None))
        sent = bench.tick(0)

        assert sent is not None
        assert not sent.positions[0].moved

    def test_a_first_commit_that_was_aborted_is_sent_again(self) -> None:
        bench = Bench()
        bench.assign(2, Commit(20, "counted", lambda: None))
        bench.tick(0)
        bench.answer(Answer(Outcome.ABORTED))

        assert offsets(bench.tick(RETRY_AFTER_S))[2] == 20

    def test_the_count_goes_back_after_a_healthy_while(self) -> None:
        bench = Bench()
        partition, _ = bench.partitions[0]
        partition.start_counter = ISOLATED_FROM
        bench.committer.not_healthy()
        bench.tick(HEALTHY_S - 1)
        assert partition.start_counter == ISOLATED_FROM
        bench.tick(1)

        assert partition.start_counter == 0
        assert bench.counts.started == [(0, 0)]


class TestHandOver:
    """Nothing of what leaves is on its way when the heir begins."""

    def answers(self, bench: Bench, *answers: Answer, after_s: float = 0.2) -> list[Transaction]:
        """Whoever waits gets these answers; the transactions that were waited for."""
        waited: list[Transaction] = []
        left = list(answers)

        def answer(timeout_s: float) -> Answer | None:
            if not left:
                bench.clock.now += timeout_s
                return None
            assert bench.port.in_flight is not None
            waited.append(bench.port.in_flight)
            bench.port.in_flight = None
            bench.clock.now += after_s
            return left.pop(0)

        bench.port.when_waited_for = answer
        return waited

    def leave(self, bench: Bench, *numbers: int) -> None:
        bench.committer.hand_over([bench.partitions[number][0] for number in numbers])

    def test_what_waits_is_committed_and_the_count_of_starts_taken_back(self) -> None:
        bench = Bench()
        bench.send(0, b"last")
        bench.partitions[0][0].start_counter = 3
        waited = self.answers(bench, DONE)
        self.leave(bench, 0)

        (last,) = waited
        assert values(last) == [b"last"]
        assert offsets(last) == {0: 1}
        assert last.positions[0].start_counter == 0

    def test_what_is_on_its_way_ends_first(self) -> None:
        bench = Bench()
        bench.send(0, b"1")
        bench.tick()
        bench.send(0, b"2")
        waited = self.answers(bench, DONE, DONE)
        self.leave(bench, 0)

        assert [values(transaction) for transaction in waited] == [[b"1"], [b"2"]]

    def test_what_was_aborted_is_tried_once_more(self) -> None:
        bench = Bench()
        bench.send(0, b"1")
        bench.tick()
        waited = self.answers(bench, Answer(Outcome.ABORTED), DONE)
        self.leave(bench, 0)

        assert [values(transaction) for transaction in waited] == [[b"1"], [b"1"]]

    def test_a_last_transaction_that_is_aborted_leaves_it_to_the_heir(self) -> None:
        bench = Bench()
        bench.send(0, b"1")
        bench.send(1, b"ours")
        self.answers(bench, Answer(Outcome.ABORTED))
        self.leave(bench, 0)
        bench.committer.end(bench.partitions[0][0])

        assert values(bench.tick(RETRY_AFTER_S)) == [b"ours"]

    def test_nothing_is_sent_if_nothing_changed(self) -> None:
        bench = Bench()
        waited = self.answers(bench)
        self.leave(bench, 0, 1)

        assert waited == []

    def test_a_transaction_that_does_not_end_in_time_ends_the_process(self) -> None:
        bench = Bench()
        bench.send(0)
        bench.tick()
        self.answers(bench)
        began = bench.clock.now

        with pytest.raises(FatalClientError, match="did not end within 2 s"):
            self.leave(bench, 0)
        assert bench.clock.now - began == pytest.approx(REVOKE_S)

    def test_so_does_the_last_one(self) -> None:
        bench = Bench()
        bench.send(0)
        self.answers(bench)

        with pytest.raises(FatalClientError, match="did not end within 2 s"):
            self.leave(bench, 0)

    def test_the_time_for_which_the_process_is_frozen_does_not_count(self) -> None:
        bench = Bench()
        bench.send(0)
        bench.tick()
        waits: list[float] = []

        def answer(timeout_s: float) -> Answer | None:
            waits.append(timeout_s)
            bench.clock.now += 60.0
            if len(waits) == 1:
                return None
            bench.port.in_flight = None
            bench.partitions[0][0].alive = False  # what a lane does on hearing it
            return Answer(Outcome.EVICTED)

        bench.port.when_waited_for = answer
        self.leave(bench, 0)

        assert bench.heard == [(0, CommitResult.LOST)]

    def test_a_slow_transaction_of_other_partitions_holds_nobody(self) -> None:
        bench = Bench()
        bench.send(1)
        bench.tick()
        self.answers(bench)
        self.leave(bench, 0)

        assert bench.port.in_flight is not None

    def test_an_owner_that_has_not_begun_commits_nothing(self) -> None:
        bench = Bench()
        partition, _ = bench.assign(2, Commit(20, "counted", lambda: None))
        waited = self.answers(bench)
        bench.committer.hand_over([partition])

        assert waited == []

    def test_but_what_it_has_to_tell_goes_with_its_first_commit(self) -> None:
        bench = Bench()
        partition, tenure = bench.assign(2, Commit(20, "counted", lambda: None))
        tenure.send(OutRecord(Kind.EVENT, b"k", b"messages lost", ()), None)
        waited = self.answers(bench, DONE)
        bench.committer.hand_over([partition])

        assert [values(transaction) for transaction in waited] == [[b"messages lost"]]
        assert offsets(waited[0]) == {2: 20}

    def test_nobody_leaves_without_partitions(self) -> None:
        bench = Bench()
        bench.send(0)
        bench.committer.hand_over([])

        assert bench.port.in_flight is None
