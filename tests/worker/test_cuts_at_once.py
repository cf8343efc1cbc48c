"""In a transaction, a cut that no audio decides is committed together with what it causes."""

from __future__ import annotations

from tests.support.calls import chunk, control, spoken
from tests.support.partitions import TOPIC_ID, Desk
from worker.ports import Limits
from worker.session_map import ChannelEntry
from worker.session_map_codec import decode_metadata

IDLE_S = 10.0
TTL_S = 100.0


def silent_desk() -> Desk:
    """A call that said a second of something and then nothing for a while."""
    desk = Desk([], limits=Limits(idle_finalize_s=IDLE_S, session_ttl_s=TTL_S), cuts_at_once=True)
    desk.arrive(chunk("c", spoken(1.0)))
    desk.commit()
    desk.wait(IDLE_S)
    desk.speech.step()
    return desk


def channel_of(desk: Desk) -> ChannelEntry:
    """The call's channel in a map of this moment."""
    commit = desk.prepare()
    found, _ = decode_metadata(commit.metadata, TOPIC_ID, 0, commit.offset)
    assert found is not None
    return found.sessions[0].streams[0].entries[0]


def reasons(desk: Desk) -> list[str]:
    return [str(final["end_reason"]) for final in desk.transcripts()]


def test_the_final_of_an_idle_cut_waits_for_no_commit() -> None:
    desk = silent_desk()

    assert reasons(desk) == ["idle"]
    assert not desk.partition.wants_commit


def test_the_cut_is_in_every_map_until_one_counts_its_final_as_told() -> None:
    desk = silent_desk()
    before = channel_of(desk)
    desk.outbox.acknowledge()
    after = channel_of(desk)

    assert before.pending is not None
    assert (before.pending.reason, before.pending.sample, before.resume_sample) == ("idle", 8000, 0)
    assert (after.pending, after.resume_sample, after.finals) == (None, 8000, 1)


def test_an_heir_of_a_map_with_the_cut_makes_the_same_and_goes_on_behind_it() -> None:
    desk = silent_desk()
    desk.commit()
    desk.take_over()
    desk.deliver(9)
    desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
    desk.settle()

    assert sorted(reasons(desk)) == ["end", "idle", "idle"]
    assert len(desk.finals()) == 2


def test_an_heir_of_a_map_without_it_knows_of_no_cut() -> None:
    desk = silent_desk()
    desk.outbox.on_topic.clear()  # its transaction was not committed
    desk.take_over()
    desk.deliver(9)
    desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
    desk.settle()

    assert reasons(desk) == ["end"]


def test_a_call_that_times_out_ends_at_once_and_the_next_message_begins_another() -> None:
    desk = silent_desk()
    desk.outbox.acknowledge()
    desk.wait(TTL_S)
    desk.speech.step()
    desk.outbox.acknowledge()

    assert [event["reason"] for event in desk.told("ended")] == ["ttl"]
    desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
    desk.settle()
    assert [event["reason"] for event in desk.told("ended")] == ["ttl", "end"]
    assert desk.committed.offset == 3
