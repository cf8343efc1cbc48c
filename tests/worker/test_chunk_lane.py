"""Partitions come and go with the assignment, and what belongs to a former one changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oasr.audio.segmenter import SegmenterConfig
from tests.support.calls import chunk, control, spoken
from tests.support.lanes import Clock, FakeReader, FakeStates, LaneCounts
from tests.support.partitions import Counts, HashingSpeech, Outbox, header
from tests.support.schemas import body, validator
from worker.admission import Admission
from worker.assignment import Start
from worker.backpressure import Backpressure
from worker.chunk_lane import TICK_INTERVAL_S, ChunkLane
from worker.cloudevents import Identity, ModelName
from worker.codec import ChunkDefaults
from worker.commits import HEALTHY_S, CommitResult
from worker.lane import ACK_WAIT_S, GIVEN_UP_S
from worker.lane_tools import LaneTools
from worker.messages import Batch, Kind, RawMessage
from worker.metadata import MAX_CHARS, MOST_STARTS, NO_MAP, Place, seal, start_counter_of
from worker.partition import Surroundings
from worker.ports import Limits
from worker.producer import FatalClientError
from worker.publisher import Publisher
from worker.session_map import SessionMap
from worker.session_map_codec import MAGIC, decode_metadata, encode_metadata
from worker.state_reference import decode_reference

START = Start(0, 0, None)


class Bench:
    """A lane whose client, engine and broker the test plays."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self.clock, self.counts, self.reader = Clock(), LaneCounts(), FakeReader()
        self.speech, self.outbox = HashingSpeech(), Outbox()
        self.flushed: list[float] = []
        self.states = FakeStates()
        tools = LaneTools(
            lambda: "topic-id", self.states, self._flush, self.counts, self.clock, 1.0, max_chars
        )
        surroundings = Surroundings(
            topic="chunks",
            speech=lambda _number: self.speech,
            records=Publisher(Identity("g", ModelName("m", "d")), lambda: 1),
            outbox=self.outbox,
            counters=Counts(),
            now=self.clock,
            now_ms=lambda: 1,
            defaults=ChunkDefaults(),
            limits=Limits(),
            endpointing=SegmenterConfig(),
            admission=Admission(("en",)),
        )
        self.pressure = Backpressure(10, 5, 0, self.clock)
        self.lane = ChunkLane(tools, surroundings, self.pressure)
        self.lane.source = self.reader
        self.held: dict[int, float] = {}

    def _flush(self, timeout_s: float) -> None:
        self.flushed.append(timeout_s)
        self.outbox.acknowledge()

    def assign(self, starts: list[Start]) -> None:
        """Partitions come, and the broker takes their first commits."""
        self.lane.assigned(starts)
        self.begin()

    def begin(self) -> None:
        """The first commits of owners that have not begun are acknowledged."""
        self.lane._committer.tick()
        for number in sorted(self.lane.waiting & self.lane.partitions.keys()):
            self.lane.commit_answered(number, CommitResult.DONE)
        self.reader.commits.clear()
        self.reader.calls.clear()
        self.counts.commits.clear()

    def read(self, *messages: RawMessage, ended: frozenset[int] = frozenset()) -> None:
        self.reader.batches.append(Batch(list(messages), ended))
        self.lane.poll(0)

    def tick(self, after_s: float = 1.0, busy: bool = True) -> None:
        self.clock.now += after_s
        self.lane.tick(lambda: self.held, busy)

    def revoke(self) -> None:
        self.lane.revoked([0])

    def lose(self) -> None:
        self.lane.lost([0])

    def finals(self) -> int:
        return sum(record.kind is Kind.FINAL for record in self.outbox.sent)


def at(offset: int, raw: RawMessage, partition: int = 0) -> RawMessage:
    return replace(raw, offset=offset, partition=partition)


def test_messages_go_to_their_partitions_and_commits_follow() -> None:
    bench = Bench()
    bench.assign([START, Start(1, 7, None)])
    bench.read(at(0, chunk("a", spoken(1.0))), at(7, control("x", "end"), partition=1))
    bench.tick()

    assert [commit[:2] for commit in bench.reader.commits] == [(0, 0), (1, 8)]
    assert bench.counts.rebalances == [("assigned", 2)]


def test_a_message_of_a_partition_that_is_not_ours_is_not_heard() -> None:
    bench = Bench()
    bench.assign([START])
    bench.read(at(0, chunk("a", spoken(1.0)), partition=5))

    assert bench.speech.open_requests == {}


@pytest.mark.parametrize("metadata", ["garbage", "oasr1:AAAA"])
def test_a_map_that_is_not_ours_is_ignored_and_counted(metadata: str) -> None:
    bench = Bench()
    bench.assign([Start(0, 0, metadata)])

    assert bench.counts.ignored_maps == 1
    bench.read(at(0, chunk("a", spoken(1.0))))
    assert len(bench.speech.open_requests) == 1


def test_a_map_of_the_same_place_is_taken() -> None:
    former, heir = Bench(), Bench()
    former.assign([START])
    former.read(at(0, chunk("a", spoken(1.0))), at(1, control("a", "flush")))
    former.tick()
    _, offset, metadata = former.reader.commits[-1]

    heir.assign([Start(0, offset, metadata)])
    heir.read(at(0, chunk("a", spoken(1.0))), at(1, control("a", "flush")))

    assert heir.counts.ignored_maps == 0
    assert len(heir.speech.finished) == 1


def test_a_revocation_waits_shortly_commits_and_hands_over() -> None:
    bench = Bench()
    bench.assign([START, Start(1, 0, None)])
    bench.read(at(0, chunk("a", spoken(1.0))), at(1, control("a", "end")))
    bench.speech.step()

    bench.lane.revoked([0])

    assert bench.flushed == [ACK_WAIT_S]
    assert [commit[:2] for commit in bench.reader.commits] == [(0, 2)]
    assert set(bench.lane.partitions) == {1}
    assert bench.counts.forgotten == [0]
    assert bench.counts.rebalances[-1] == ("revoked", 1)


def test_a_lost_partition_commits_and_publishes_nothing() -> None:
    bench = Bench()
    bench.assign([START])
    bench.read(at(0, chunk("a", spoken(1.0))))
    bench.lane.lost([0])
    bench.tick()
    bench.speech.step()

    assert bench.reader.commits == bench.flushed == []
    assert bench.speech.open_requests == {}
    assert bench.finals() == 0


def test_a_revocation_of_what_is_not_ours_is_nothing() -> None:
    bench = Bench()
    bench.lane.revoked([4])
    bench.lane.lost([4])

    assert bench.flushed == []


class TestLostCommits:
    def begun(self) -> Bench:
        bench = Bench()
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))))
        bench.tick()
        return bench

    def test_an_answer_that_says_so_drops_the_partition(self) -> None:
        bench = self.begun()
        bench.lane.commit_answered(0, CommitResult.LOST)
        bench.read(at(1, chunk("a", spoken(1.0))))
        bench.tick()

        assert bench.speech.open_requests == {}
        assert len(bench.reader.commits) == 1
        bench.lane.lost([0])
        assert bench.lane.partitions == {}

    def test_a_partition_that_is_not_taken_away_after_that_ends_the_process(self) -> None:
        bench = self.begun()
        bench.lane.commit_answered(0, CommitResult.LOST)
        bench.clock.now += GIVEN_UP_S - 1
        bench.lane.poll(0)
        bench.clock.now += 1

        with pytest.raises(FatalClientError, match="partition 0"):
            bench.lane.poll(0)

    def test_a_partition_that_is_taken_away_in_time_does_not(self) -> None:
        bench = self.begun()
        bench.lane.commit_answered(0, CommitResult.LOST)
        bench.lane.lost([0])
        bench.assign([START])
        bench.clock.now += 2 * GIVEN_UP_S

        bench.lane.poll(0)

        assert bench.lane.partitions[0].alive

    def test_any_other_answer_does_not(self) -> None:
        for result in (CommitResult.DONE, CommitResult.RETRY, CommitResult.TOO_LARGE):
            bench = self.begun()
            bench.lane.commit_answered(0, result)

            assert len(bench.speech.open_requests) == 1

    def test_an_answer_to_a_former_assignment_does_not_drop_the_present_one(self) -> None:
        bench = self.begun()
        bench.lane.lost([0])
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))))

        bench.lane.commit_answered(0, CommitResult.LOST)

        assert bench.lane.partitions[0].alive
        assert len(bench.speech.open_requests) == 1

    def test_an_answer_nobody_asked_for_does_not(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.lane.commit_answered(0, CommitResult.LOST)

        assert bench.lane.partitions[0].alive


class TestTimeOuts:
    def test_an_idle_call_is_cut_at_the_end_of_the_log(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))), ended=frozenset({0}))
        bench.clock.now += 10
        bench.lane.poll(0)
        bench.tick(0)
        bench.lane.commit_answered(0, CommitResult.DONE)
        bench.speech.step()

        assert bench.finals() == 1

    def test_an_end_of_the_log_before_the_last_messages_does_not_count(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(ended=frozenset({0}))
        bench.read(at(0, chunk("a", spoken(1.0))))
        bench.clock.now += 100
        bench.lane.poll(0)
        bench.tick(0)

        assert not bench.lane.partitions[0].wants_commit

    def test_time_in_which_nobody_asked_for_messages_does_not_count(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))), ended=frozenset({0}))

        bench.tick(100)  # a step of the engine that took so long

        assert len(bench.speech.open_requests) == 1
        assert not bench.lane.partitions[0].sessions.all()[0].channels[0].pending

    def test_a_paused_partition_has_none(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))), ended=frozenset({0}))
        bench.held = {0: 11}
        bench.tick(TICK_INTERVAL_S)
        assert bench.reader.paused == {0}

        bench.clock.now += 100
        bench.lane.poll(0)
        bench.tick(0)

        assert not bench.lane.partitions[0].sessions.all()[0].channels[0].pending


class TestBackpressure:
    def test_partitions_are_paused_and_resumed(self) -> None:
        bench = Bench()
        bench.assign([START, Start(1, 0, None)])
        bench.held = {0: 8, 1: 3}
        bench.tick()
        bench.held = {0: 1}
        bench.tick()

        assert bench.reader.calls == [("pause", (0,)), ("resume", (0,))]

    def test_an_idle_engine_resumes_all(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.held = {0: 11}
        bench.tick()
        bench.held = {}
        bench.tick(busy=False)

        assert bench.reader.paused == frozenset()

    def test_a_partition_that_left_is_not_resumed(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.held = {0: 11}
        bench.tick()
        bench.lane.revoked([0])

        assert bench.pressure.paused == frozenset()

    def test_it_is_looked_at_ten_times_a_second(self) -> None:
        bench = Bench()
        bench.assign([START])
        asked = 0

        def held() -> dict[int, float]:
            nonlocal asked
            asked += 1
            return {}

        for _ in range(100):
            bench.clock.now += 0.01
            bench.lane.tick(held, True)

        assert 9 <= asked <= 11


def test_closing_hands_everything_over_once() -> None:
    bench = Bench()
    bench.reader = FakeReader(on_close=lambda: bench.lane.revoked([0]))
    bench.lane.source = bench.reader
    bench.assign([START])
    bench.read(at(0, control("a", "end")))

    bench.lane.close()
    bench.lane.close()

    assert bench.reader.closed
    assert [commit[:2] for commit in bench.reader.commits] == [(0, 1)]
    assert bench.lane.partitions == {}
    assert bench.lane.poll(1.0) == 0


class TestMapsByReference:
    """A map that does not fit lies on the state topic; a partition waits until it is there."""

    def left(self) -> tuple[Start, Bench]:
        """What an owner with many calls leaves."""
        former = Bench(max_chars=20)
        former.assign([START])
        former.read(*[at(i, chunk(f"call-{i}", spoken(0.3))) for i in range(3)])
        former.outbox.acknowledge()
        former.tick()
        former.states.written()
        _, offset, metadata = former.reader.commits[-1]
        heir = Bench()
        heir.states.records = former.states.records
        return Start(0, offset, metadata), heir

    def test_a_partition_is_not_read_before_its_map_is_there(self) -> None:
        start, heir = self.left()
        heir.assign([start, Start(1, 0, None)])
        assert heir.reader.paused == {0}
        assert set(heir.lane.partitions) == {1}
        assert heir.counts.rebalances == [("assigned", 2)]
        heir.tick()  # neither backpressure nor an idle engine resumes it
        heir.tick(busy=False)
        assert heir.reader.paused == {0}
        assert heir.states.polls == 0
        heir.lane.poll(0)
        assert heir.states.polls == 1

        heir.states.found()
        assert heir.reader.paused == {0}
        heir.begin()

        assert heir.reader.paused == frozenset()
        assert heir.counts.ignored_maps == 0
        heir.read(*[at(i, chunk(f"call-{i}", spoken(0.3))) for i in range(3)])
        assert len(heir.lane.partitions[0].sessions.all()) == 3
        assert heir.outbox.sent == []  # all three were announced

    def test_messages_that_come_all_the_same_are_kept(self) -> None:
        start, heir = self.left()
        heir.assign([start])
        heir.read(*[at(i, chunk(f"call-{i}", spoken(0.3))) for i in range(3)])
        heir.states.found()

        assert heir.lane.partitions[0].tracker.highest == 2

    def test_a_record_that_is_gone_makes_the_map_undecodable(self) -> None:
        start, heir = self.left()
        heir.assign([start])
        heir.states.found(gone=True)

        assert heir.counts.ignored_maps == 1
        heir.read(at(0, chunk("call-0", spoken(0.3))))
        assert len(heir.outbox.sent) == 1  # started once more: everything is replayed

    def test_a_record_of_another_place_makes_the_map_undecodable(self) -> None:
        start, heir = self.left()
        other = Start(1, start.offset, start.metadata)
        heir.assign([other])

        assert heir.counts.ignored_maps == 1
        assert heir.states.searches == []
        assert set(heir.lane.partitions) == {1}

    def test_a_partition_that_leaves_meanwhile_is_not_looked_for(self) -> None:
        for leave in (Bench.revoke, Bench.lose):
            start, heir = self.left()
            heir.assign([start])
            leave(heir)
            assert heir.states.searches[0].cancelled
            assert heir.lane.waiting == frozenset()
            heir.states.found()

            assert heir.lane.partitions == {}
            assert heir.reader.commits == []
            assert heir.counts.rebalances[-1][1] == 0

    def test_a_partition_that_came_back_takes_the_new_search(self) -> None:
        start, heir = self.left()
        heir.assign([start])
        heir.lose()
        heir.assign([start])
        heir.states.found()
        assert heir.lane.partitions == {}
        heir.states.found()

        assert set(heir.lane.partitions) == {0}

    def test_closing_closes_the_reader(self) -> None:
        bench = Bench()
        bench.lane.close()

        assert bench.states.closed


class TestStarts:
    """Owners are counted before anything is decoded, and taken off when they leave in order."""

    def committed(self, bench: Bench) -> tuple[int, SessionMap | None, int]:
        """The last commit that was sent: its offset, map and start counter."""
        number, offset, metadata = bench.reader.commits[-1]
        return offset, *decode_metadata(metadata, "topic-id", number, offset)

    def heir(self, bench: Bench) -> Bench:
        """The next owner, who has not begun."""
        heir = Bench()
        _, offset, metadata = bench.reader.commits[-1]
        heir.lane.assigned([Start(0, offset, metadata)])
        return heir

    def test_the_first_commit_counts_the_owner_and_nothing_is_read_before_its_answer(self) -> None:
        bench = Bench()
        bench.lane.assigned([START])
        assert bench.reader.paused == {0}
        bench.tick()
        assert self.committed(bench) == (0, None, 1)
        bench.tick(busy=False)
        assert bench.reader.paused == {0}
        assert len(bench.reader.commits) == 1

        bench.lane.commit_answered(0, CommitResult.DONE)

        assert bench.reader.paused == frozenset()
        assert bench.counts.started == [(0, 1)]

    def test_a_first_commit_that_failed_is_sent_again(self) -> None:
        bench = Bench()
        bench.lane.assigned([START])
        bench.tick()
        bench.lane.commit_answered(0, CommitResult.RETRY)
        assert bench.reader.paused == {0}
        bench.tick()

        assert bench.reader.commits == [bench.reader.commits[0]] * 2

    def test_every_owner_that_dies_is_counted_with_the_map_untouched(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))))
        bench.tick()
        _, contents, _ = self.committed(bench)
        assert contents is not None
        for starts in (2, 3, 4):
            bench = self.heir(bench)
            bench.tick()
            assert self.committed(bench) == (0, contents, starts)

    def test_the_count_stops_where_it_would_take_more_room(self) -> None:
        bench = Bench()
        metadata = encode_metadata(None, "topic-id", 0, 0, MOST_STARTS)
        bench.lane.assigned([Start(0, 0, metadata)])
        bench.tick()

        assert bench.reader.commits == [(0, 0, metadata)]

    def test_an_owner_that_leaves_in_order_takes_the_count_back(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.revoke()

        assert self.committed(bench)[2] == 0

    def test_an_owner_that_leaves_before_it_has_begun_takes_nothing_back(self) -> None:
        bench = Bench()
        bench.lane.assigned([START])
        bench.revoke()

        assert bench.reader.commits == []

    def test_a_map_that_does_not_fit_keeps_its_record_and_loses_the_count(self) -> None:
        bench = Bench(max_chars=20)
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))))
        bench.tick()
        bench.states.written()
        named = decode_reference(bench.reader.commits[-1][2], Place("topic-id", 0, 0))
        assert named is not None
        assert named[1] == 1
        bench.lane.commit_answered(0, CommitResult.DONE)
        bench.read(at(1, chunk("a", spoken(1.0))))
        bench.revoke()

        left = decode_reference(bench.reader.commits[-1][2], Place("topic-id", 0, 0))
        assert left == (named[0], 0)

    def test_a_record_counts_like_any_other_map(self) -> None:
        bench = Bench(max_chars=20)
        bench.assign([START])
        bench.read(at(0, chunk("a", spoken(1.0))))
        bench.tick()
        bench.states.written()
        for gone, starts in ((False, 2), (True, 2)):
            heir = self.heir(bench)
            heir.states.records = bench.states.records
            heir.states.found(gone)
            heir.tick()
            metadata = heir.reader.commits[-1][2]
            named = decode_reference(metadata, Place("topic-id", 0, 0))
            assert (named is None) == gone
            assert start_counter_of(metadata, Place("topic-id", 0, 0)) == starts
            assert heir.states.writing == []

    def test_a_child_that_died_keeps_the_count_of_a_partition_that_runs_apart(self) -> None:
        bench = Bench()
        place = Place("topic-id", 0, 0)
        bench.assign([Start(0, 0, seal(MAGIC, NO_MAP, place, 4))])
        assert bench.counts.started[-1] == (0, 5)
        bench.tick(HEALTHY_S - 2)
        bench.lane.commit_answered(0, CommitResult.DONE)

        bench.lane.child_died()
        bench.tick(HEALTHY_S - 1)
        assert bench.lane.partitions[0].start_counter == 5
        bench.tick()
        assert bench.lane.partitions[0].start_counter == 0

    def test_a_child_that_died_is_nothing_to_other_partitions(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.tick(HEALTHY_S - 2)
        bench.lane.child_died()
        bench.lane.commit_answered(0, CommitResult.DONE)

        bench.tick(2)

        assert bench.lane.partitions[0].start_counter == 0

    def test_an_owner_that_lives_for_minutes_takes_the_count_back(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.tick(HEALTHY_S - 1)
        assert bench.counts.started == [(0, 1)]
        bench.lane.commit_answered(0, CommitResult.DONE)
        bench.tick()

        assert self.committed(bench)[2] == 0
        assert bench.counts.started[-1] == (0, 0)


class TestLoss:
    """Messages that the log has lost before they were read."""

    def test_it_is_counted_and_told_once_the_owner_has_begun(self) -> None:
        bench = Bench()
        bench.lane.assigned([Start(0, 9, None, 4)])
        assert bench.counts.lost_messages == 4
        assert bench.outbox.sent == []
        bench.tick()
        bench.lane.commit_answered(0, CommitResult.DONE)
        bench.tick()
        bench.lane.commit_answered(0, CommitResult.DONE)

        (record,) = bench.outbox.sent
        validator("partition-event").validate(body(record))
        assert (record.kind, record.key) == (Kind.EVENT, b"chunks:0")
        assert body(record)["group"] == "g"
        assert (body(record)["first_offset"], body(record)["last_offset"]) == (5, 8)
        assert header(record, "ce_id") == "chunks:0:5:8:messages_lost"
        assert header(record, "ce_type") == "oasr.partition.messages_lost.v1"

    def test_an_owner_that_leaves_before_it_began_tells_nothing(self) -> None:
        bench = Bench()
        bench.lane.assigned([Start(0, 9, None, 4)])
        bench.lane.lost([0])
        bench.assign([START])

        assert bench.outbox.sent == []

    def test_nothing_lost_is_nothing_told(self) -> None:
        bench = Bench()
        bench.assign([START])

        assert bench.counts.lost_messages == 0
        assert bench.outbox.sent == []
