"""Cuts that no audio decides: first committed, then made, the same by every owner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from tests.support.calls import chunk, control, hushed, spoken
from tests.support.deaths import commit_answer_lost, commit_lost_on_its_way, nothing
from tests.support.partitions import TOPIC_ID, Desk, header
from tests.support.schemas import header_texts, validator
from worker.engine_process import CRASHED
from worker.errors import ErrorCode
from worker.ports import Limits
from worker.session_map import SessionMap, StreamEntry
from worker.session_map_codec import decode_metadata

IDLE_S, TTL_S = 10.0, 3600.0


def map_of(desk: Desk) -> SessionMap:
    """What the last commit says."""
    contents, _ = decode_metadata(desk.committed.metadata, TOPIC_ID, 0, desk.committed.offset)
    assert contents is not None
    return contents


def said(desk: Desk) -> list[tuple[float, float, str]]:
    return sorted({(f["start"], f["end"], f["end_reason"]) for f in desk.transcripts()})


def talking() -> Desk:
    """A call in the middle of an utterance."""
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0)))
    desk.commit()
    return desk


class TestIdle:
    def test_a_call_from_which_nothing_comes_is_cut(self) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        desk.settle()

        assert said(desk) == [(0.0, 1.0, "idle")]
        assert desk.told("ended") == []

    def test_a_call_from_which_nothing_came_for_less_is_not(self) -> None:
        desk = talking()
        desk.wait(IDLE_S - 0.1)

        assert not desk.partition.wants_commit

    def test_a_call_that_is_silent_since_its_last_cut_has_nothing_to_cut(self) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        desk.settle()

        desk.wait(IDLE_S)

        assert not desk.partition.wants_commit

    def test_nothing_is_published_before_the_commit_that_names_the_cut_is_acknowledged(
        self,
    ) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        assert desk.partition.wants_commit
        commit = desk.prepare()
        desk.speech.step()
        assert desk.transcripts() == []

        desk.acknowledge_commit(commit)
        desk.speech.step()

        assert said(desk) == [(0.0, 1.0, "idle")]
        assert map_of(desk).sessions[0].streams[0].entries[0].pending is not None

    def test_a_commit_that_was_prepared_before_does_not_free_the_cut(self) -> None:
        desk = talking()
        older = desk.prepare()
        desk.wait(IDLE_S)

        desk.acknowledge_commit(older)
        desk.speech.step()

        assert desk.transcripts() == []

    def test_an_answer_to_an_older_cut_does_not_free_a_newer_one(self) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        desk.commit()
        late = desk.prepare()  # names the first cut, which is made already
        desk.speech.step()
        desk.outbox.acknowledge()
        desk.arrive(chunk("c", spoken(1.0)))
        desk.wait(IDLE_S)

        late.on_done()
        desk.speech.step()

        assert said(desk) == [(0.0, 1.0, "idle")]

    def test_it_needs_the_end_of_the_log(self) -> None:
        desk = Desk([])
        desk.arrive(chunk("c", spoken(1.0)))
        desk.partition.paused()  # whatever comes next has not been fetched

        desk.wait(10 * IDLE_S)
        assert not desk.partition.wants_commit

        desk.partition.end_reached()
        desk.partition.tick()
        assert desk.partition.wants_commit

    def test_other_calls_on_the_partition_do_not_stop_it(self) -> None:
        desk = talking()
        for _ in range(int(IDLE_S)):
            desk.clock_s += 1
            desk.arrive(chunk("other", spoken(0.1)))  # and with it the end of the log again
            desk.partition.tick()
        desk.settle()

        assert said(desk) == [(0.0, 1.0, "idle")]

    def test_a_backlog_of_other_calls_stops_it(self) -> None:
        desk = talking()
        desk.arrive(chunk("other", spoken(0.1)))
        desk.partition.receive(replace(desk.log[-1], offset=7))

        desk.wait(10 * IDLE_S)

        assert not desk.partition.wants_commit

    def test_keep_alives_do_not_stop_it(self) -> None:
        desk = talking()
        desk.wait(IDLE_S - 1)
        desk.arrive(control("c", "keepalive"))
        desk.wait(1)

        assert desk.partition.wants_commit

    def test_a_chunk_that_arrives_while_it_is_proposed_stays_behind_it(self) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
        desk.settle()

        assert said(desk) == [(0.0, 1.0, "idle"), (1.0, 2.0, "end")]
        assert desk.told("ended")[0]["reason"] == "end"

    def test_without_its_commit_the_audio_goes_on_as_if_nothing_had_been(self) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        desk.prepare()  # lost on the way
        desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))

        desk.take_over()
        desk.deliver(9)
        desk.settle()

        assert said(desk) == [(0.0, 2.0, "end")]

    def test_an_abort_that_arrives_while_it_is_proposed_stays_behind_it(self) -> None:
        def aborted(dies: bool) -> Desk:
            desk = talking()
            desk.wait(IDLE_S)
            desk.arrive(chunk("c", spoken(1.0)), control("c", "abort"))
            commit = desk.prepare()
            desk.acknowledge_commit(commit)
            if dies:
                desk.take_over()
                desk.deliver(9)
            desk.settle()
            return desk

        desk = aborted(dies=False)
        assert said(desk) == [(0.0, 1.0, "idle")]
        assert desk.told("ended")[0]["totals"][0]["dropped"]["abort"]["samples"] == 8000
        heir = aborted(dies=True)
        assert (heir.finals(), heir.events()) == (desk.finals(), desk.events())

    def test_a_flush_that_arrives_while_it_is_proposed_has_nothing_left_to_cut(self) -> None:
        desk = talking()
        desk.wait(IDLE_S)
        desk.arrive(control("c", "flush"), control("c", "end"))
        desk.settle()

        assert said(desk) == [(0.0, 1.0, "idle")]
        assert desk.committed.offset == 3


def decoded(desk: Desk) -> None:
    desk.commit()
    desk.speech.step()


def acknowledged(desk: Desk) -> None:
    decoded(desk)
    desk.outbox.acknowledge()


def committed_again(desk: Desk) -> None:
    acknowledged(desk)
    desk.commit()


DEATHS = [nothing, commit_lost_on_its_way, commit_answer_lost, decoded, acknowledged]
DEATHS += [committed_again, Desk.settle]


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
def test_an_idle_cut_is_the_same_whenever_its_owner_dies(death: Callable[[Desk], None]) -> None:
    def end(desk: Desk) -> Desk:
        desk.wait(IDLE_S)
        desk.settle()
        desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
        desk.settle()
        return desk

    undisturbed = end(talking())
    desk = talking()
    desk.wait(IDLE_S)
    death(desk)
    desk.take_over()
    desk.deliver(9)
    end(desk)

    assert said(undisturbed) == [(0.0, 1.0, "idle"), (1.0, 2.0, "end")]
    assert desk.finals() == undisturbed.finals()
    assert desk.events() == undisturbed.events()


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
def test_a_session_that_times_out_ends_the_same_whenever_its_owner_dies(
    death: Callable[[Desk], None],
) -> None:
    def begin() -> Desk:
        desk = Desk([], limits=Limits(idle_finalize_s=1e9))
        desk.arrive(
            chunk("c", spoken(1.0), channel=0, channels=2, roles="agent,customer"),
            chunk("c", hushed(0.5), channel=1, channels=2, roles="agent,customer"),
        )
        desk.commit()
        desk.wait(TTL_S)
        return desk

    undisturbed = begin()
    undisturbed.settle()
    desk = begin()
    death(desk)
    desk.take_over()
    desk.deliver(9)
    desk.wait(TTL_S)
    desk.settle()

    (ended,) = undisturbed.told("ended")
    assert (ended["reason"], ended["finals"], ended["channels"]) == ("ttl", 1, 2)
    assert said(undisturbed) == [(0.0, 1.0, "ttl")]
    assert desk.finals() == undisturbed.finals()
    assert desk.events() == undisturbed.events()
    assert desk.committed.offset == 2
    assert map_of(desk).sessions == ()


class TestTimeToLive:
    def ending(self) -> Desk:
        """A silent call whose end is proposed."""
        desk = Desk([])
        desk.arrive(chunk("c", hushed(1.0)))
        desk.wait(IDLE_S)
        desk.settle()
        desk.wait(TTL_S)
        assert desk.partition.wants_commit
        return desk

    def test_a_dormant_session_keeps_its_key_in_the_map_and_ends_after_a_take_over(self) -> None:
        desk = Desk([])
        desk.arrive(chunk("c", spoken(1.0)))
        desk.wait(IDLE_S)
        desk.settle()
        assert desk.committed.offset == 1
        assert map_of(desk).sessions[0].key == b"c"

        desk.take_over()
        desk.deliver()
        desk.wait(TTL_S)
        desk.settle()

        assert desk.told("ended")[0]["reason"] == "ttl"
        assert desk.told("ended")[0]["finals"] == 1
        assert map_of(desk).sessions == ()

    def test_a_dormant_session_goes_on_after_a_take_over(self) -> None:
        desk = Desk([])
        desk.arrive(chunk("c", spoken(1.0), sequence=0))
        desk.wait(IDLE_S)
        desk.settle()

        desk.take_over()
        desk.arrive(chunk("c", spoken(1.0), sequence=1), control("c", "end", sequence=2))
        desk.settle()

        assert said(desk) == [(0.0, 1.0, "idle"), (1.0, 2.0, "end")]
        assert len(desk.told("started")) == len(desk.told("ended")) == 1

    def test_keep_alives_hold_it_off(self) -> None:
        desk = Desk([])
        desk.arrive(chunk("c", hushed(1.0)))
        desk.wait(IDLE_S)
        desk.settle()
        desk.wait(TTL_S - 60)
        desk.arrive(control("c", "keepalive"))

        desk.wait(120)
        assert not desk.partition.wants_commit

        desk.wait(TTL_S)
        assert desk.partition.wants_commit

    def test_what_comes_after_the_proposal_begins_a_new_origin(self) -> None:
        desk = self.ending()
        desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
        desk.speech.step()
        assert len(desk.told("started")) == 1  # nothing more before the commit

        desk.settle()

        assert [b["origin"] for b in desk.told("started")] == ["0-0", "0-1"]
        assert [(b["origin"], b["reason"]) for b in desk.told("ended")] == [
            ("0-0", "ttl"),
            ("0-1", "end"),
        ]
        assert said(desk) == [(0.0, 1.0, "end")]
        assert desk.committed.offset == 3

    @pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
    def test_what_waits_for_the_end_is_not_lost_with_its_owner(
        self, death: Callable[[Desk], None]
    ) -> None:
        desk = self.ending()
        desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
        death(desk)
        desk.take_over()
        desk.deliver(9)
        desk.settle()

        if death in (nothing, commit_lost_on_its_way):
            # Nobody has heard of the end: the call goes on.
            assert said(desk) == [(1.0, 2.0, "end")]
            assert [b["reason"] for b in desk.told("ended")] == ["end"]
        else:
            assert said(desk) == [(0.0, 1.0, "end")]
            assert [b["reason"] for b in desk.told("ended")] == ["ttl", "end"]
        assert desk.committed.offset == 3

    def test_sessions_that_end_together_have_events_of_their_own(self) -> None:
        desk = Desk([])
        desk.arrive(chunk("a", hushed(1.0)), chunk("b", hushed(1.0)))
        desk.wait(IDLE_S)
        desk.settle()
        desk.wait(TTL_S)
        desk.settle()

        assert {b["session_id"] for b in desk.told("ended")} == {"a", "b"}

    def test_the_channels_of_a_session_end_together(self) -> None:
        desk = Desk([], answering=False)
        desk.arrive(
            chunk("c", spoken(1.0), channel=0, channels=2),
            chunk("c", hushed(1.0), channel=1, channels=2),
        )
        desk.wait(IDLE_S)
        desk.settle()  # the final of channel 0 is not acknowledged: its cut still waits

        desk.wait(TTL_S)

        pending = [entry.pending for stream in entries(desk) for entry in stream.entries]
        assert [p is not None and p.kind for p in pending] == ["cut", False]


def entries(desk: Desk) -> list[StreamEntry]:
    return [stream for s in desk.partition.session_map().sessions for stream in s.streams]


class TestEngineFailure:
    def test_an_open_segment_ends_where_it_stands_and_says_so(self) -> None:
        desk = talking()
        desk.speech.failing = True
        desk.speech.step()
        desk.speech.failing = False
        assert desk.transcripts() == []
        desk.partition.tick()
        desk.settle()

        (final,) = desk.transcripts()
        assert (final["end_reason"], final["warnings"]) == ("error", ["engine_failed"])
        assert final["alternatives"][0]["transcript"] == "half"
        assert final["end_sample"] == 8000

        desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
        desk.settle()
        assert said(desk) == [(0.0, 1.0, "error"), (1.0, 2.0, "end")]

    def test_a_segment_that_is_cut_before_the_tick_says_so_too(self) -> None:
        desk = talking()
        desk.speech.failing = True
        desk.speech.step()
        desk.speech.failing = False
        desk.arrive(control("c", "end"))
        desk.settle()

        (final,) = desk.transcripts()
        assert (final["end_reason"], final["warnings"]) == ("end", ["engine_failed"])
        assert desk.committed.offset == 2

    def test_a_failure_without_any_text_has_a_final_all_the_same(self) -> None:
        desk = talking()
        ((segment, _),) = desk.speech.open_requests.values()
        desk.speech.fail(segment, "")
        desk.partition.tick()
        desk.settle()

        assert desk.transcripts()[0]["warnings"] == ["engine_failed"]

    def test_audio_that_kills_its_process_is_told_by_a_dead_letter_before_its_final(self) -> None:
        desk = talking()
        ((segment, _),) = desk.speech.open_requests.values()
        desk.speech.fail(segment, "", CRASHED)
        desk.partition.tick()
        desk.commit()  # carries the cut
        desk.speech.step()
        (letter,) = desk.dead_letters()
        assert desk.transcripts() == []
        validator("dead-letter.headers").validate(header_texts(letter))
        desk.settle()

        (final,) = desk.transcripts()
        assert (final["end_reason"], final["warnings"]) == ("error", ["crashed_worker"])
        assert final["alternatives"][0]["transcript"] == ""
        assert letter.key == b"c"
        assert header(letter, "error.code") == "crashed_worker"
        assert header(letter, "error.id") == f"{final['segment_id']}:crashed_worker"
        assert header(letter, "attempts") == "2"
        assert orjson.loads(letter.value) == {
            "schema": "oasr.segment-reference.v1",
            "topic": "chunks",
            "partition": 0,
            "first_offset": final["source"]["first_offset"],
            "last_offset": final["source"]["last_offset"],
            "channel": 0,
            "start_sample": 0,
            "end_sample": 8000,
            "sample_rate": 8000,
        }
        assert desk.counts.codes == [ErrorCode.CRASHED_WORKER]

    def test_an_heir_says_the_same_of_audio_that_kills_its_process(self) -> None:
        desk = talking()
        ((segment, _),) = desk.speech.open_requests.values()
        desk.speech.fail(segment, "", CRASHED)
        desk.partition.tick()
        desk.commit()
        desk.speech.step()  # the dead letter is on its way, its sender dies
        desk.take_over()
        desk.deliver(len(desk.log))
        for heard, _ in list(desk.speech.open_requests.values()):
            desk.speech.fail(heard, "", CRASHED)
        for _, (heard, output) in enumerate(desk.speech.finished):
            heard.receive(replace(output, finish_reason="error", error_stage=CRASHED, text=""))
        desk.speech.finished.clear()
        desk.settle()

        assert {header(d, "error.id") for d in desk.dead_letters()} == {"c:0-0:0:0:crashed_worker"}
        assert len({d.value for d in desk.dead_letters()}) == 1
        (said,) = desk.finals().values()
        assert len(said) == 1

    def test_neighbours_are_unharmed(self) -> None:
        desk = Desk([])
        desk.arrive(chunk("a", spoken(1.0)), chunk("b", spoken(1.0)))
        (first, _), _ = desk.speech.open_requests.values()
        desk.speech.fail(first, "half")
        desk.partition.tick()
        desk.arrive(control("a", "end"), control("b", "end"))
        desk.settle()

        reasons = {f["session_id"]: f["end_reason"] for f in desk.transcripts()}
        assert reasons == {"a": "error", "b": "end"}
