"""Jobs of our partitions are read, decoded and finished; a take-over finishes the others."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.support.file_lane import FileLaneBench as Bench
from tests.support.file_lane import heir_of
from tests.support.files import InlinePool, inline, wav
from tests.support.lanes import FakeReader
from tests.support.partitions import header
from tests.support.signals import join, silence, speech
from worker.assignment import Start
from worker.commits import CommitResult
from worker.file_lane import WAITING_PER_WORKER
from worker.file_map import decode_file_metadata
from worker.messages import Kind, RawMessage

TALK = wav(join(silence(0.5), speech(1.0), silence(0.5)))
PAUSES = join(*[join(speech(1.0, seed=n), silence(1.5)) for n in range(3)])
LONG_TALK = wav(PAUSES, PAUSES)
START = Start(0, 0, None)


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.file_lane.ThreadPoolExecutor", InlinePool)


def test_a_job_has_finals_a_completed_event_and_its_offset_committed() -> None:
    bench = Bench()
    bench.assign([START])
    bench.read(inline(0, TALK))
    assert bench.commit()[0] == 0

    bench.work()
    bench.lane.commit_answered(0, CommitResult.DONE)

    assert len(bench.finals()) == len(bench.completed()) == 1
    assert bench.commit()[0] == 1
    assert bench.counts.outcomes == {"ok": 1}
    assert bench.lane.open_jobs == 0


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (inline(0, b"garbage"), "container_invalid"),
        (inline(0, TALK, key=None), "key_required"),
        (inline(0, TALK, options='{"language": "fi"}'), "option_unsupported"),
        (inline(0, b"[]", **{"content-type": "application/json"}), "invalid_file_job"),
        (inline(0, b'{"uri": "file:///etc/passwd"}', **{"content-type": "application/json"}), ""),
    ],
)
def test_a_bad_job_is_a_dead_letter_and_the_next_one_runs(raw: RawMessage, code: str) -> None:
    bench = Bench()
    bench.assign([START])
    bench.read(raw, inline(1, TALK))
    bench.work()

    assert bench.codes() == [code or "uri_forbidden"]
    assert len(bench.completed()) == 1
    assert bench.commit()[0] == 2


def test_a_tombstone_is_done_at_once() -> None:
    bench = Bench()
    bench.assign([START])
    bench.read(inline(0, None))

    assert bench.outbox.sent == []
    assert bench.counts.outcomes == {"tombstone": 1}
    assert bench.commit()[0] == 1


def test_times_that_suit_calls_do_not_stop_a_file() -> None:
    options = '{"no_speech_ms": 30000, "max_utterance_ms": 60000}'
    bench = Bench()
    bench.assign([START])
    bench.read(inline(0, TALK, options=options))
    bench.work()

    assert len(bench.completed()) == 1


def test_a_file_of_the_file_system_is_read_below_the_roots(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(TALK)
    claim = orjson.dumps({"uri": f"file://{tmp_path}/a.wav", "size_bytes": len(TALK)})
    bench = Bench(roots=(tmp_path,))
    bench.assign([START])
    bench.read(inline(0, claim, **{"content-type": "application/json"}))
    bench.work()

    assert len(bench.finals()) == 1


def test_a_dead_letter_holds_the_commit_until_it_is_acknowledged() -> None:
    bench = Bench(answering=False)
    bench.assign([START])
    bench.read(inline(0, TALK, key=None))
    bench.work()

    assert bench.commit()[0] == 0


class TestTakeOver:
    def test_a_partition_whose_owners_keep_dying_is_decoded_in_a_process_of_its_own(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.lane.partitions[0].start_counter = 5
        bench.read(inline(0, TALK))

        assert bench.apart.waiting
        assert not bench.recognizer.waiting

    def test_finished_jobs_above_the_watermark_are_not_done_again(self) -> None:
        bench = Bench(workers=2)
        bench.assign([START])
        bench.read(inline(0, TALK), inline(1, TALK), inline(2, TALK))
        bench.recognizer.answer("2")  # of the job at offset 1
        bench.lane.poll()
        bench.outbox.acknowledge()
        bench.lane.poll()
        bench.outbox.acknowledge()

        heir = heir_of(bench)
        heir.read(inline(0, TALK), inline(1, TALK), inline(2, TALK))
        heir.work()

        assert [f["source"]["first_offset"] for f in heir.finals()] == [0, 2]
        assert heir.commit()[0] == 3

    def test_what_is_listed_as_finished_stays_listed_until_it_is_read_again(self) -> None:
        bench = Bench(workers=2)
        bench.assign([START])
        bench.read(inline(0, TALK), inline(1, TALK))
        bench.recognizer.answer("2")
        for _ in range(3):
            bench.lane.poll()
            bench.outbox.acknowledge()

        second = heir_of(bench)
        second.read(inline(0, TALK))
        third = heir_of(second)
        third.read(inline(0, TALK), inline(1, TALK))
        third.work()

        assert [f["source"]["first_offset"] for f in third.finals()] == [0]

    @pytest.mark.parametrize("acknowledged", range(6))
    def test_a_file_is_published_once_though_its_owner_dies_in_the_middle(
        self, acknowledged: int
    ) -> None:
        undisturbed, bench = Bench(), Bench()
        undisturbed.assign([START])
        undisturbed.read(inline(0, LONG_TALK))
        undisturbed.work()
        expected = [header(record, "ce_id") for record in undisturbed.of(Kind.FINAL)]
        assert len(expected) == 6

        bench.assign([START])
        bench.read(inline(0, LONG_TALK))
        bench.recognizer.answer_all()
        bench.outbox.acknowledge(acknowledged)
        # A second owner dies before it has read the message, a third before it reads the file.
        heir = heir_of(heir_of(bench))
        heir.lane.drain()
        heir.read(inline(0, LONG_TALK))
        heir = heir_of(heir)
        heir.read(inline(0, LONG_TALK))
        heir.work()

        finals = [header(record, "ce_id") for record in heir.of(Kind.FINAL)]
        assert finals == expected[acknowledged:]
        (completed,) = heir.completed()
        (untouched,) = undisturbed.completed()
        assert completed == untouched
        assert completed["finals"] == 6
        assert heir.commit()[0] == 1

    def test_nothing_is_skipped_behind_a_final_that_was_not_acknowledged(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(inline(0, LONG_TALK))
        bench.recognizer.answer_all()
        del bench.outbox.waiting[0]  # all others are
        bench.outbox.acknowledge()
        heir = heir_of(bench)
        heir.read(inline(0, LONG_TALK))
        heir.work()

        # Of the two channels one is safe, the other not at all.
        assert [f["channel"] for f in heir.finals()] == [0, 0, 0]

    def test_a_window_without_text_does_not_hold_the_others_back(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(inline(0, LONG_TALK))
        for request_id in list(bench.recognizer.waiting):
            bench.recognizer.answer(request_id, text="" if request_id == "1" else None)
        bench.outbox.acknowledge(5)  # the finals; the completed event is not
        heir = heir_of(bench)
        heir.read(inline(0, LONG_TALK))
        for request_id in list(heir.recognizer.waiting):
            heir.recognizer.answer(request_id, text="" if request_id == "1" else None)
        heir.work()

        assert heir.finals() == []
        assert heir.completed()[0]["finals"] == 5

    def test_a_job_that_was_not_finished_has_the_same_ids_again(self) -> None:
        bench = Bench(answering=False)
        bench.assign([START])
        bench.read(inline(0, TALK))
        bench.recognizer.answer_all()
        bench.lane.poll()
        heir = heir_of(bench)
        heir.read(inline(0, TALK))
        heir.work()

        ids = [header(record, "ce_id") for record in heir.of(Kind.FINAL)]
        assert ids == [header(record, "ce_id") for record in bench.of(Kind.FINAL)]

    def test_a_foreign_map_is_ignored(self) -> None:
        bench = Bench()
        bench.assign([Start(0, 0, "oasrf1:AAAA")])
        bench.read(inline(0, TALK))
        bench.work()

        assert bench.lane_counts.ignored_maps == 1
        assert len(bench.completed()) == 1

    def test_the_map_names_what_is_finished_above_the_watermark(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(inline(0, TALK), inline(1, None), inline(2, None))

        offset, metadata = bench.commit()

        contents, _ = decode_file_metadata(metadata, "topic-id", 0, offset)
        assert contents is not None
        assert (offset, contents.finished) == (0, (1, 2))


class TestHandOver:
    def test_open_jobs_leave_the_engine_and_say_nothing(self) -> None:
        bench = Bench()
        bench.assign([START, Start(1, 0, None)])
        bench.read(inline(0, TALK), inline(1, TALK))
        assert bench.lane.running_jobs == 1
        assert bench.lane.open_jobs == 2

        bench.lane.revoked([0])
        bench.work()

        assert bench.recognizer.dropped == ["1"]
        assert bench.outbox.sent == []
        assert bench.lane.open_jobs == 0

    def test_what_is_acknowledged_later_changes_nothing(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(inline(0, TALK))
        bench.recognizer.answer_all()
        partition = bench.lane.partitions[0]
        bench.lane.lost([0])
        bench.outbox.acknowledge()
        bench.lane.poll()

        assert partition.tracker.open_offsets() == (0,)
        assert bench.completed() == []

    def test_jobs_of_other_partitions_go_on(self) -> None:
        bench = Bench(workers=2)
        bench.assign([START, Start(1, 0, None)])
        other = RawMessage("files", 1, 0, 0, b"g", TALK, (("content-type", b"audio/wav"),))
        bench.read(inline(0, TALK), other)
        bench.lane.revoked([0])
        bench.work()

        assert [f["session_id"] for f in bench.finals()] == ["g"]


class TestDrain:
    def test_jobs_in_progress_go_on_and_others_are_left_to_the_heir(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.read(inline(0, TALK), inline(1, TALK))
        bench.lane.drain()
        bench.read(inline(2, TALK))  # was fetched before the pause
        bench.work()

        assert [f["source"]["first_offset"] for f in bench.finals()] == [0]
        assert bench.lane.running_jobs == 0
        assert bench.commit()[0] == 1
        assert bench.reader.paused == {0}

    def test_partitions_that_come_meanwhile_are_not_read(self) -> None:
        bench = Bench()
        bench.assign([START])
        bench.lane.drain()
        bench.assign([Start(1, 0, None)])
        bench.lane.poll()

        assert bench.reader.paused == {0, 1}


def test_reading_stops_while_enough_jobs_wait_and_goes_on_when_none_does() -> None:
    bench = Bench()
    bench.assign([START])
    bench.read(*[inline(i, TALK) for i in range(1 + WAITING_PER_WORKER)])
    assert bench.reader.paused == {0}

    bench.recognizer.answer_all()
    bench.outbox.acknowledge()
    bench.lane.poll()
    assert bench.reader.paused == {0}

    bench.work()
    assert bench.reader.paused == frozenset()


def test_only_so_many_files_are_open_at_once() -> None:
    bench = Bench(workers=2)
    bench.assign([START])
    bench.read(*[inline(i, TALK) for i in range(6)])

    assert (bench.lane.running_jobs, bench.lane.open_jobs) == (2, 6)
    assert len(bench.recognizer.waiting) == 2


def test_the_oldest_job_has_an_age() -> None:
    bench = Bench()
    assert bench.lane.oldest_age_s() == 0
    bench.assign([START])
    bench.read(inline(0, TALK))

    assert bench.lane.oldest_age_s() == 3.0


def test_closing_ends_the_pool_and_leaves_the_group() -> None:
    bench = Bench()
    bench.reader = FakeReader("files", on_close=lambda: bench.lane.revoked([0]))
    bench.lane.source = bench.reader
    bench.assign([START])
    bench.read(inline(0, TALK))
    bench.lane.close()

    assert bench.reader.closed
    assert bench.recognizer.dropped == ["1"]
    pool = bench.lane._pool
    assert isinstance(pool, InlinePool)
    assert pool.shut_down


def test_every_job_is_open_until_its_completed_event_is_safe() -> None:
    bench = Bench(answering=False)
    bench.assign([START])
    bench.read(*[inline(i, TALK) for i in range(3)])
    bench.work()

    assert bench.lane.partitions[0].tracker.open_offsets() == (0, 1, 2)


def test_jobs_that_the_log_lost_are_told() -> None:
    bench = Bench()
    bench.assign([Start(0, 3, None, 2)])

    (record,) = bench.of(Kind.EVENT)
    assert orjson.loads(record.value)["event"] == "messages_lost"
    assert (record.key, bench.lane_counts.lost_messages) == (b"files:0", 2)
