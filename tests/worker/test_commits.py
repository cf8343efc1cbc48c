"""One commit in flight per partition, only what changed, and nothing that is not ours."""

from __future__ import annotations

import logging

import pytest

from tests.support.lanes import Clock, FakePartition, FakeStates, LaneCounts
from worker.commits import SLOW_STATE_S, CommitResult, Committer
from worker.metadata import MAX_CHARS, Place
from worker.state_reference import StateReference, decode_reference, reference_to


class Bench:
    """A committer whose broker answers when the test says so."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self.clock, self.states = Clock(), FakeStates()
        self.counts = LaneCounts()
        self.sent: list[tuple[int, int, str]] = []
        self.committer = Committer(
            lambda *commit: self.sent.append(commit),
            self.states.write,
            self.counts,
            self.clock,
            1.0,
            max_chars,
        )
        self.partition = FakePartition(3)
        self.committer.begin(self.partition)

    def tick(self, after_s: float = 1.0) -> list[tuple[int, int, str]]:
        """What is sent when so much time has passed."""
        self.clock.now += after_s
        before = len(self.sent)
        self.committer.tick()
        return self.sent[before:]

    def answer(self, result: CommitResult = CommitResult.DONE) -> bool:
        return self.committer.answered(3, result)


def test_a_commit_is_sent_and_told_of_once_it_is_acknowledged() -> None:
    bench = Bench()

    assert bench.tick() == [(3, 0, "map")]
    assert bench.partition.done == []
    assert bench.answer()

    assert bench.partition.done == [(0, "map")]
    assert bench.counts.commits == [(3, "done")]
    assert bench.counts.chars == [3]


def test_what_has_not_changed_is_not_committed_again() -> None:
    bench = Bench()
    bench.tick()
    bench.answer()

    assert bench.tick() == []
    bench.partition.metadata = "other"
    assert bench.tick() == [(3, 0, "other")]


def test_nothing_is_sent_between_the_intervals() -> None:
    bench = Bench()
    bench.tick()
    bench.answer()
    bench.partition.offset = 9

    assert bench.tick(0.9) == []
    assert bench.tick(0.1) == [(3, 9, "map")]


def test_a_pending_cut_does_not_wait_for_the_interval() -> None:
    bench = Bench()
    bench.tick()
    bench.answer()
    bench.partition.offset, bench.partition.wants_commit = 9, True

    assert bench.tick(0) == [(3, 9, "map")]
    assert not bench.partition.wants_commit


def test_the_next_commit_waits_for_the_answer_to_the_last() -> None:
    bench = Bench()
    bench.tick()
    bench.partition.offset, bench.partition.wants_commit = 9, True

    assert bench.tick(60) == []
    bench.answer()
    assert bench.tick(0) == [(3, 9, "map")]


@pytest.mark.parametrize("result", [CommitResult.RETRY, CommitResult.TOO_LARGE])
def test_a_commit_that_failed_is_tried_again_after_an_interval(result: CommitResult) -> None:
    bench = Bench()
    bench.tick()
    bench.answer(result)

    assert bench.partition.done == []
    assert bench.tick(0) == []
    assert bench.tick() == [(3, 0, "map")]


def test_an_answer_is_counted_though_nobody_waits_for_it() -> None:
    bench = Bench()

    assert not bench.answer(CommitResult.RETRY)
    assert not bench.committer.answered(99, CommitResult.DONE)
    assert bench.counts.commits == [(3, "retry"), (99, "done")]


def test_a_partition_that_was_dropped_commits_nothing() -> None:
    bench = Bench()
    bench.partition.alive = False

    assert bench.tick() == []
    assert not bench.committer.commit_last(bench.partition)


def test_an_answer_that_comes_after_the_drop_is_not_told() -> None:
    bench = Bench()
    bench.tick()
    bench.partition.alive = False
    bench.answer()

    assert bench.partition.done == []


def test_a_hand_over_commits_once_more_without_waiting_for_the_interval() -> None:
    bench = Bench()
    bench.tick()
    bench.answer()
    bench.partition.offset = 7

    assert bench.committer.commit_last(bench.partition)
    assert bench.sent[-1] == (3, 7, "map")


def test_a_hand_over_does_not_send_a_second_commit_beside_one_in_flight() -> None:
    bench = Bench()
    bench.tick()
    bench.partition.offset = 7

    assert not bench.committer.commit_last(bench.partition)
    assert len(bench.sent) == 1


def test_a_partition_that_is_gone_is_not_committed() -> None:
    bench = Bench()
    bench.committer.end(bench.partition)

    assert bench.tick() == []
    assert not bench.committer.commit_last(bench.partition)
    assert list(bench.committer.partitions()) == []


def test_the_answer_to_a_former_assignment_is_not_taken_for_our_own() -> None:
    bench = Bench()
    bench.tick()
    bench.committer.end(bench.partition)
    heir = FakePartition(3, offset=5)
    bench.committer.begin(heir)

    assert bench.tick() == []  # the old commit may still be repeated by the client
    assert not bench.answer()
    assert heir.done == []
    assert bench.tick() == [(3, 5, "map")]
    assert bench.answer()
    assert heir.done == [(5, "map")]


def test_the_end_of_a_former_assignment_does_not_end_the_present_one() -> None:
    bench = Bench()
    heir = FakePartition(3)
    bench.committer.begin(heir)
    bench.committer.end(bench.partition)

    assert list(bench.committer.partitions()) == [heir]


class TestByReference:
    """A map that does not fit goes to the state topic, and the commit names its record."""

    def begun(self, chars: int = MAX_CHARS + 1) -> Bench:
        bench = Bench()
        bench.partition.offset, bench.partition.metadata = 7, "m" * chars
        return bench

    def named(self, bench: Bench) -> StateReference:
        number, offset, metadata = bench.sent[-1]
        decoded = decode_reference(metadata, Place("topic-id", number, offset))
        assert decoded is not None
        return decoded[0]

    def test_the_commit_follows_the_record(self) -> None:
        bench = self.begun()
        assert bench.tick() == []
        place, text, _ = bench.states.writing[0]
        assert (place, text) == (Place("topic-id", 3, 7), bench.partition.metadata)

        bench.states.written()
        assert self.named(bench) == reference_to(text.encode(), 0, 0)
        assert bench.partition.done == []
        bench.answer()

        assert bench.partition.done == [(7, text)]
        assert bench.counts.chars == [MAX_CHARS + 1]

    def test_the_longest_map_that_fits_needs_none(self) -> None:
        bench = self.begun(MAX_CHARS)

        assert len(bench.tick()) == 1
        assert bench.states.writing == []

    def test_the_limit_may_be_another_one(self) -> None:
        bench = Bench(max_chars=2)
        bench.tick()

        assert len(bench.states.writing) == 1

    def test_no_second_commit_is_prepared_while_the_record_is_on_its_way(self) -> None:
        bench = self.begun()
        bench.tick()
        bench.partition.metadata, bench.partition.wants_commit = "small", True

        assert bench.tick(60) == []
        bench.states.written()
        assert bench.tick(60) == []
        bench.answer()

        assert bench.tick() == [(3, 7, "small")]
        assert len(bench.states.records) == 1

    def test_what_has_not_changed_is_not_written_again(self) -> None:
        bench = self.begun()
        bench.tick()
        bench.states.written()
        bench.answer()

        assert bench.tick(60) == []
        assert bench.states.writing == []

    def test_a_record_that_is_not_delivered_holds_the_commit_and_the_next_one_tries_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = self.begun()
        with caplog.at_level(logging.WARNING):
            for _ in range(30):
                assert bench.tick() == []
                bench.states.written(failed=True)
                assert bench.tick(0) == []  # not on every turn of the loop
            assert len(caplog.records) == 1
            assert "could not be written" in caplog.text
            assert bench.counts.held == [3] * 30
            bench.tick(60)
            bench.states.written(failed=True)
        assert len(caplog.records) == 2

        bench.tick()
        bench.states.written()
        assert self.named(bench).offset == 0

    def test_a_record_that_takes_long_is_worth_a_word(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench = self.begun()
        with caplog.at_level(logging.WARNING):
            bench.tick()
            bench.tick(SLOW_STATE_S - 0.1)
            assert caplog.records == []
            bench.tick(0.1)
            bench.tick(1)

        assert len(caplog.records) == 1
        assert "still on its way" in caplog.text

    def test_a_hand_over_leaves_the_last_commit_standing(self) -> None:
        bench = self.begun()

        assert not bench.committer.commit_last(bench.partition)
        assert bench.sent == bench.states.writing == []
        assert bench.counts.commits == [(3, "too_large")]

    def test_a_hand_over_does_not_wait_for_a_record_if_the_map_fits_by_then(self) -> None:
        bench = self.begun()
        bench.tick()
        bench.partition.offset, bench.partition.metadata = 9, "small"

        assert bench.committer.commit_last(bench.partition)
        bench.states.written()

        assert bench.sent == [(3, 9, "small")]

    def test_a_record_of_a_former_assignment_is_named_by_nobody(self) -> None:
        bench = self.begun()
        bench.tick()
        bench.committer.end(bench.partition)
        bench.committer.begin(FakePartition(3, offset=8))
        bench.states.written()

        assert bench.sent == []
        assert bench.tick() == [(3, 8, "map")]  # no answer is awaited

    def test_a_partition_that_was_dropped_meanwhile_commits_nothing(self) -> None:
        bench = self.begun()
        bench.tick()
        bench.partition.alive = False
        bench.states.written()

        assert bench.sent == bench.counts.held == []

    def test_an_answer_that_nobody_waits_for_does_not_end_the_writing(self) -> None:
        bench = self.begun()
        bench.tick()

        assert not bench.answer(CommitResult.LOST)
        bench.states.written()
        assert self.named(bench).offset == 0


def test_partitions_do_not_wait_for_each_other() -> None:
    bench = Bench()
    bench.committer.begin(FakePartition(4))
    bench.tick()
    bench.partition.offset = 1

    bench.committer.answered(3, CommitResult.DONE)

    assert bench.tick() == [(3, 1, "map")]
