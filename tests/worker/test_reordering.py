"""Messages out of order are put back into it; what decides is the order in the log alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio import pcm
from tests.support.calls import Shape, call, chunk, control, hushed, placed, spoken
from tests.support.deaths import commit_answer_lost, commit_lost_on_its_way, nothing
from tests.support.disturbed import reordered
from tests.support.partitions import Desk
from worker.codec import ChunkDefaults, parse_chunk
from worker.messages import RawMessage
from worker.ports import Limits
from worker.reorder import ReorderLimits, ReorderWindow, Waiting, moment_at
from worker.streams import Anchor, MediaFormat, Stream

IDLE_S, TTL_S = 10.0, 60.0
TENTH = spoken(0.1)


def desk_with(*messages: RawMessage, limits: Limits | None = None) -> Desk:
    desk = Desk([], limits=limits or Limits())
    desk.arrive(*messages)
    desk.settle()
    return desk


def numbered(*sequences: int, value: bytes = TENTH, **headers: object) -> list[RawMessage]:
    return [chunk("c", value, sequence=number, **headers) for number in sequences]


def missing(desk: Desk) -> list[tuple[int, int]]:
    return [(gap["first_sequence"], gap["last_sequence"]) for gap in desk.told("gap")]


def readings(desk: Desk) -> list[tuple[object, ...]]:
    """What finals say of the audio, whatever offsets it had."""
    fields = ("channel", "start", "end", "start_sample", "end_sample", "end_reason", "alternatives")
    return sorted(
        (tuple(str(final[field]) for field in fields) for final in desk.transcripts()), key=str
    )


def dropped(desk: Desk) -> int:
    (ended,) = desk.told("ended")
    return sum(t["dropped"].get("duplicate", {"samples": 0})["samples"] for t in ended["totals"])


@pytest.mark.parametrize(
    "shape",
    [
        Shape(smallest=200, largest=1000),
        Shape(encoding="pcm_s16le", channels=2, smallest=7, largest=2003),
    ],
    ids=["mono", "stereo frames split anywhere"],
)
@pytest.mark.parametrize("seed", range(3))
def test_audio_shuffled_within_the_window_is_heard_as_if_it_had_come_in_order(
    shape: Shape, seed: int
) -> None:
    rng = random.Random(seed)
    messages = call("c", shape, 9.0, rng)

    in_order = Desk(placed(messages))
    in_order.run()
    shuffled = Desk(placed(messages[:1] + reordered(messages[1:], rng, most=5)))
    shuffled.run()

    assert readings(shuffled) == readings(in_order)
    assert missing(shuffled) == []
    assert shuffled.told("ended")[0]["totals"] == in_order.told("ended")[0]["totals"]
    assert shuffled.committed.offset == len(messages)


def test_a_message_that_came_early_waits_and_holds_the_commit() -> None:
    desk = desk_with(*numbered(0, 2), chunk("other", hushed(0.1)))

    assert missing(desk) == []
    assert desk.partition.tracker.is_open(1)

    desk.arrive(*numbered(1), control("c", "end", sequence=3))
    desk.settle()

    assert desk.told("ended")[0]["totals"][0]["received"]["samples"] == 2400
    assert (missing(desk), dropped(desk)) == ([], 0)


@pytest.mark.parametrize(("waiting", "gaps"), [(8, []), (9, [(1, 1)])])
def test_a_message_is_given_up_when_more_than_eight_wait_for_it(
    waiting: int, gaps: list[tuple[int, int]]
) -> None:
    desk = desk_with(*numbered(0, *range(2, 2 + waiting)))

    assert missing(desk) == gaps


@pytest.mark.parametrize(("seconds", "gaps"), [(0.5, []), (0.6, [(1, 1)])])
def test_a_message_is_given_up_when_more_than_a_second_of_audio_waits_for_it(
    seconds: float, gaps: list[tuple[int, int]]
) -> None:
    desk = desk_with(*numbered(0, 2, 3, value=hushed(seconds)))

    assert missing(desk) == gaps


def test_limits_of_zero_give_up_at_once() -> None:
    limits = Limits(reorder=ReorderLimits(0, 0))

    desk = desk_with(*numbered(0, 2, 1), control("c", "end"), limits=limits)

    assert missing(desk) == [(1, 1)]
    assert dropped(desk) == 800


def test_what_comes_after_it_was_given_up_is_dropped() -> None:
    desk = desk_with(*numbered(0, *range(2, 12), 1), control("c", "end"))

    assert missing(desk) == [(1, 1)]
    assert dropped(desk) == 800


def test_a_second_gap_behind_the_first_is_found_in_its_turn() -> None:
    desk = desk_with(*numbered(0, 2, 4, 3, 1, 5), control("c", "end", sequence=6))

    assert missing(desk) == []
    desk = desk_with(*numbered(0, 2, 5), control("c", "end", sequence=7))

    assert missing(desk) == [(1, 1), (3, 4), (6, 6)]


def test_a_repeat_of_a_message_that_waits_is_dropped() -> None:
    desk = desk_with(*numbered(0, 2, 2, 1), control("c", "end"))

    assert dropped(desk) == 800
    assert desk.told("ended")[0]["totals"][0]["received"]["samples"] == 3200


@pytest.mark.parametrize("event", ["end", "abort", "flush"])
def test_what_cuts_takes_first_what_waits(event: str) -> None:
    desk = desk_with(*numbered(0, 2), control("c", event))

    assert missing(desk) == [(1, 1)]
    if event != "abort":
        assert desk.transcripts()[0]["end_sample"] == 1600


def test_a_flush_that_comes_late_cuts_where_its_number_stands() -> None:
    desk = desk_with(
        *numbered(0, 1, 3), control("c", "flush", sequence=2), control("c", "end", sequence=4)
    )

    ends = [(f["end_reason"], f["end_sample"]) for f in desk.transcripts()]
    assert ends == [("flush", 1600), ("end", 2400)]
    assert missing(desk) == []


def test_audio_without_a_number_goes_behind_what_waits() -> None:
    desk = desk_with(*numbered(0, 2), chunk("c", TENTH), control("c", "end"))

    assert missing(desk) == [(1, 1)]
    assert desk.transcripts()[0]["end_sample"] == 2400


def test_a_keep_alive_waits_for_its_turn_without_being_lost() -> None:
    desk = desk_with(
        *numbered(0), control("c", "keepalive", sequence=2), *numbered(1, 3), control("c", "end")
    )

    assert (missing(desk), dropped(desk)) == ([], 0)
    assert desk.committed.offset == 5


def test_another_format_is_heard_behind_what_waits_and_its_time_goes_on_from_there() -> None:
    media = {"encoding": "alaw", "sample_rate": 8000}
    desk = desk_with(
        *numbered(10, 12),
        chunk("c", spoken(0.1, "alaw"), **{**media, "sequence": 14}),
        *numbered(11, 13),
        chunk("c", None, event="end", **{**media, "sequence": 15}),
    )

    assert missing(desk) == [(11, 11)]
    assert desk.told("resumed")[-1]["from_sample"] == 1600
    assert [b["reason"] for b in desk.told("ended")] == ["format_change", "end"]
    # What comes late of the former format is no format of its own.
    assert desk.told("ended")[1]["totals"][0]["dropped"]["duplicate"]["samples"] == 1600


class TestSeparateChannels:
    @staticmethod
    def part(channel: int, *sequences: int) -> list[RawMessage]:
        return numbered(*sequences, channel=channel, channels=2)

    def test_each_channel_waits_for_its_own_messages_alone(self) -> None:
        desk = desk_with(
            *self.part(0, 0), *self.part(1, 0), *self.part(1, 2), *self.part(0, 1, 2, 3)
        )
        assert desk.partition.tracker.is_open(2)

        desk.arrive(*self.part(1, 1), control("c", "end"))
        desk.settle()

        received = [t["received"]["samples"] for t in desk.told("ended")[0]["totals"]]
        assert received == [3200, 2400]
        assert missing(desk) == []

    def test_an_end_takes_what_waits_in_every_channel(self) -> None:
        desk = desk_with(
            *self.part(0, 0), *self.part(1, 0), *self.part(1, 2), control("c", "end", sequence=1)
        )

        assert [(g["channel"], g["first_sequence"]) for g in desk.told("gap")] == [(1, 1)]
        assert [t["received"]["samples"] for t in desk.told("ended")[0]["totals"]] == [800, 1600]


def halted() -> Desk:
    """A call of which a message is missing when it falls silent."""
    desk = Desk([], limits=Limits(idle_finalize_s=IDLE_S, session_ttl_s=TTL_S))
    desk.arrive(*numbered(0, 1, 3, 5))
    desk.commit()
    return desk


class TestClosure:
    def test_a_silent_call_is_told_after_a_commit_has_closed_its_window(self) -> None:
        desk = halted()
        desk.wait(IDLE_S)
        assert desk.partition.wants_commit
        assert missing(desk) == []

        desk.settle()

        assert missing(desk) == [(2, 2), (4, 4)]
        assert [(f["end_reason"], f["end_sample"]) for f in desk.transcripts()] == [("idle", 3200)]
        assert desk.committed.offset == 4

    def test_what_comes_while_it_is_proposed_lies_behind_it(self) -> None:
        desk = halted()
        desk.wait(IDLE_S)
        desk.arrive(*numbered(2, 4, 6), control("c", "end", sequence=7))
        desk.settle()

        assert missing(desk) == [(2, 2), (4, 4)]
        assert dropped(desk) == 1600

    def test_without_its_commit_the_missing_message_may_still_come(self) -> None:
        desk = halted()
        desk.wait(IDLE_S)
        desk.prepare()  # lost on the way
        desk.arrive(*numbered(2, 4, 6))

        desk.take_over()
        desk.deliver(9)
        desk.arrive(control("c", "end", sequence=7))
        desk.settle()

        assert (missing(desk), dropped(desk)) == ([], 0)

    def test_a_session_that_times_out_takes_first_what_waits(self) -> None:
        desk = Desk([], limits=Limits(idle_finalize_s=1e9, session_ttl_s=TTL_S))
        desk.arrive(*numbered(0, 2))
        desk.wait(TTL_S)
        desk.settle()

        assert missing(desk) == [(1, 1)]
        assert desk.told("ended")[0]["reason"] == "ttl"
        assert desk.told("ended")[0]["totals"][0]["received"]["samples"] == 1600


def committed_twice(desk: Desk) -> None:
    desk.commit()
    desk.partition.tick()
    desk.commit()


def decoded(desk: Desk) -> None:
    committed_twice(desk)
    desk.speech.step()
    desk.commit()


def acknowledged(desk: Desk) -> None:
    decoded(desk)
    desk.outbox.acknowledge()
    desk.commit()


DEATHS = [nothing, commit_lost_on_its_way, commit_answer_lost, Desk.commit, committed_twice]
DEATHS += [decoded, acknowledged, Desk.settle]


@pytest.mark.parametrize("late", [True, False], ids=["comes late", "never comes"])
@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
def test_a_closure_is_the_same_whenever_its_owner_dies(
    death: Callable[[Desk], None], late: bool
) -> None:
    def end(desk: Desk) -> Desk:
        desk.wait(IDLE_S)
        desk.settle()
        desk.arrive(*numbered(*([2, 6] if late else [6])), control("c", "end", sequence=7))
        desk.settle()
        return desk

    undisturbed = end(halted())
    desk = halted()
    desk.wait(IDLE_S)
    death(desk)
    desk.take_over()
    desk.deliver(9)
    end(desk)

    assert missing(undisturbed) == [(2, 2), (4, 4)]
    assert desk.finals() == undisturbed.finals()
    assert desk.events() == undisturbed.events()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 32))
def test_owners_that_die_while_calls_fall_silent_never_say_two_things_under_one_id(
    seed: int,
) -> None:
    rng = random.Random(seed)
    messages = call("c", Shape(), 6.0, rng)
    kept = [raw for raw in messages[1:-1] if rng.random() < 0.9]
    log = placed([messages[0], *reordered([*kept, messages[-1]], rng)])
    desk = Desk(log, limits=Limits(idle_finalize_s=IDLE_S))
    read = 0  # by any owner: before that, no heir is at the end of the log

    for _ in range(150):
        read = max(read, desk.position)
        move = rng.random()
        if move < 0.3:
            desk.deliver(rng.choice([1, 2, 5]))
        elif move < 0.4 and desk.position == read:
            desk.partition.end_reached()  # all that there is so far
            desk.wait(rng.choice([0.0, IDLE_S]))
        elif move < 0.6:
            desk.speech.step(rng.choice([1, 100]))
            desk.outbox.acknowledge(rng.choice([1, 100]))
        elif move < 0.9:
            desk.commit()
        else:
            desk.take_over()
    desk.deliver(len(log))
    desk.settle()

    assert all(len(said) == 1 for said in desk.finals().values())
    assert all(len(said) == 1 for said in desk.events().values())
    (ended,) = desk.told("ended")
    received = ended["totals"][0]["received"]["samples"]
    assert received == sum(len(raw.value or b"") for raw in log)
    assert desk.committed.offset == len(log)


def test_a_repeat_of_what_an_heir_has_gathered_is_one_though_its_number_comes_next() -> None:
    media = MediaFormat(pcm.Encoding.MULAW, 8000, 1)
    window = ReorderWindow(ReorderLimits(), media.byte_rate, moment=moment_at(88))
    stream = Stream(media, 0, Anchor(next_sequence=21), 68, window)
    raw = numbered(21)[0]
    parsed = parse_chunk(raw, ChunkDefaults())
    assert parsed is not None
    assert not stream.is_duplicate(21)

    window.hold(21, Waiting(raw, parsed))

    assert stream.is_duplicate(21)
