"""Too many sessions: the longest idle ones end, nothing is paused, memory stays bounded."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import chunk, control, spoken
from tests.support.partitions import Desk, header
from worker.errors import ErrorCode
from worker.messages import RawMessage
from worker.ports import Limits

FEW = Limits(max_sessions=3)
AUDIO = spoken(0.5)


def keys_of(desk: Desk) -> set[str]:
    return {session.identity.session_id for session in desk.partition.sessions.all()}


def test_the_session_ends_from_which_nothing_came_for_longest() -> None:
    desk = Desk([], FEW)
    for key in "abc":
        desk.arrive(chunk(key, AUDIO))
        desk.clock_s += 1
    desk.arrive(chunk("a", AUDIO))
    desk.settle()
    assert keys_of(desk) == {"a", "b", "c"}

    desk.clock_s += 1
    desk.arrive(chunk("d", AUDIO))
    desk.settle()

    assert keys_of(desk) == {"a", "c", "d"}
    (ended,) = desk.told("ended")
    assert (ended["session_id"], ended["reason"]) == ("b", "shed")
    assert ended["warnings"] == ["session_limit"]
    assert ended["totals"][0]["received"]["samples"] == 4000
    (final,) = desk.transcripts()
    assert (final["session_id"], final["end_reason"]) == ("b", "shed")


def test_its_end_is_made_once_a_commit_has_carried_it() -> None:
    desk = Desk([], FEW)
    for key in "abcd":
        desk.clock_s += 1
        desk.arrive(chunk(key, AUDIO))
    desk.partition.tick()
    assert desk.partition.wants_commit
    assert desk.told("ended") == []

    desk.take_over()  # the commit never came: nobody knows of an end
    desk.deliver(len(desk.log))
    assert keys_of(desk) == {"a", "b", "c", "d"}


def test_a_session_that_comes_back_begins_a_new_origin() -> None:
    desk = Desk([], FEW)
    for key in "abcd":
        desk.clock_s += 1
        desk.arrive(chunk(key, AUDIO))
    desk.settle()
    desk.arrive(chunk("a", AUDIO))

    assert [(e["session_id"], e["origin"]) for e in desk.told("started")][-1] == ("a", "0-4")


def test_none_is_ended_for_room_while_a_replay_goes_on() -> None:
    desk = Desk([], Limits())
    for key in "abcd":
        desk.arrive(chunk(key, AUDIO))
        desk.arrive(chunk(key, AUDIO))
    desk.commit()
    desk.limits = FEW
    desk.take_over()
    desk.deliver(len(desk.log) - 1)
    desk.partition.tick()
    assert not desk.partition.wants_commit
    desk.deliver()
    desk.settle()

    assert len(keys_of(desk)) == 3
    assert {len(texts) for texts in desk.finals().values()} == {1}


def test_at_twice_the_limit_no_other_session_begins() -> None:
    desk = Desk([], FEW)
    for n in range(9):
        desk.arrive(chunk(f"k{n}", AUDIO))

    assert len(keys_of(desk)) == 6
    assert desk.counts.codes == [ErrorCode.SESSION_LIMIT] * 3
    letters = desk.dead_letters()
    assert [header(letter, "source.offset") for letter in letters] == ["6", "7", "8"]
    assert letters[0].value == desk.log[6].value
    desk.arrive(chunk("k0", AUDIO), control("k1", "end"))  # those that are open go on
    desk.settle()
    assert desk.committed.offset < 9
    assert len(keys_of(desk)) == 3
    desk.arrive(chunk("k9", AUDIO))
    assert "k9" in keys_of(desk)


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(0, 11), min_size=20, max_size=80), st.randoms(use_true_random=False))
def test_whatever_comes_every_message_is_heard_or_refused(keys: list[int], rng) -> None:  # type: ignore[no-untyped-def]
    desk = Desk([], FEW)
    for key in keys:
        desk.clock_s += 0.1
        desk.arrive(chunk(f"k{key}", AUDIO))
        assert len(desk.partition.sessions.all()) <= 2 * FEW.max_sessions
        if rng.random() < 0.3:
            desk.partition.tick()
        if rng.random() < 0.3:
            desk.commit()
        if rng.random() < 0.3:
            desk.speech.step()
            desk.outbox.acknowledge()
    desk.settle()
    for key in range(12):
        desk.arrive(control(f"k{key}", "end"))
    desk.settle()

    received = sum(e["totals"][0]["received"]["samples"] for e in desk.told("ended"))
    refused = len(desk.dead_letters())
    assert received == (len(keys) - refused) * 4000
    assert desk.committed.offset == len(desk.log)


def test_hundreds_of_keys_with_one_chunk_each_take_the_memory_of_those_that_are_open() -> None:
    desk = Desk([], Limits(max_sessions=20))

    def play(keys: range) -> int:
        most = 0
        for n in keys:
            desk.partition.receive(_placed(n))
            if n % 10 == 9:
                desk.clock_s += 0.1
                most = max(most, len(desk.partition.sessions.all()))
                desk.partition.tick()
                desk.speech.step()
                desk.outbox.acknowledge()
                desk.commit()
                desk.outbox.sent.clear()
                desk.outbox.on_topic.clear()
                desk.counts.codes.clear()
        return most

    play(range(200))
    gc.collect()
    tracemalloc.start()
    most = play(range(200, 800))
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 20 <= most <= 40
    assert grown < 2 << 20  # what the sessions that are open now take, and no more
    assert desk.committed.offset > 750


def _placed(number: int) -> RawMessage:
    return replace(chunk(f"key-{number}", AUDIO[:80]), offset=number)
