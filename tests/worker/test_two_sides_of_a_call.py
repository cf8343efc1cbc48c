"""Two people of one call, heard by the bundled model: each text stays on its side."""

from __future__ import annotations

import random
from itertools import chain, zip_longest

import numpy as np
import pytest

from oasr.audio import g711
from tests.support.calls import interleaved, message
from tests.support.heard import RATE, Side, errors, heard, of_side
from worker.messages import RawMessage

# They talk at the same time from the first second to the last but one.
AGENT = Side([(0.5, 0), (7.0, 7)])
CUSTOMER = Side([(1.2, 6), (7.6, 3)])
LARGEST_WER = 0.15


def alone(side: Side) -> list[list[object]]:
    """What is heard of a side that nobody interrupts."""
    utterances, _ = heard(side.chunks(0, channels=1))
    return of_side(utterances, 0)


def in_turn(*sides: list[RawMessage]) -> list[RawMessage]:
    return [m for m in chain.from_iterable(zip_longest(*sides)) if m is not None]


def overlap_s(one: list[list[object]], other: list[list[object]]) -> float:
    """Seconds in which both sides have an utterance."""
    return sum(
        max(0.0, min(a[1], b[1]) - max(a[0], b[0]))  # type: ignore[type-var, operator]
        for a in one
        for b in other
    )


@pytest.fixture(scope="module")
def expected() -> list[list[list[object]]]:
    sides = [alone(AGENT), alone(CUSTOMER)]
    assert errors(AGENT, sides[0]) < LARGEST_WER
    assert errors(CUSTOMER, sides[1]) < LARGEST_WER
    assert overlap_s(*sides) > 4
    return sides


def test_people_who_talk_at_once_are_each_heard_as_if_alone(expected) -> None:
    utterances, desk = heard(in_turn(AGENT.chunks(0), CUSTOMER.chunks(1)))

    assert [of_side(utterances, channel) for channel in (0, 1)] == expected
    assert {(f["channel"], f["role"]) for f in desk.transcripts()} == {
        (0, "agent"),
        (1, "customer"),
    }
    assert desk.told("gap") == []


def test_interleaved_channels_are_each_heard_as_if_alone(expected) -> None:
    frames = max(len(AGENT.audio), len(CUSTOMER.audio))
    both = np.zeros((frames, 2), np.int16)
    both[: len(AGENT.audio), 0] = AGENT.audio
    both[: len(CUSTOMER.audio), 1] = CUSTOMER.audio
    data = g711.linear_to_mulaw(both.reshape(-1))
    headers = {"encoding": "mulaw", "sample_rate": RATE, "channels": 2}

    utterances, _ = heard(
        [message("c", data[i : i + 3201], headers) for i in range(0, len(data), 3201)]
    )

    for channel, side in enumerate(expected):
        # The shorter side has silence behind it here; what its last utterance says is the same.
        assert [[start, text] for start, _, text in of_side(utterances, channel)] == [
            [start, text] for start, _, text in side
        ]


def test_a_channel_that_comes_seconds_later_is_on_the_same_timeline(expected) -> None:
    customer = CUSTOMER.chunks(1)
    late = [*AGENT.chunks(0)[:15], *in_turn(AGENT.chunks(0)[15:], customer)]

    utterances, desk = heard(late)

    assert [of_side(utterances, channel) for channel in (0, 1)] == expected
    assert desk.told("gap") == []


def test_a_channel_that_comes_whole_before_the_other_is_on_the_same_timeline(expected) -> None:
    utterances, _ = heard(CUSTOMER.chunks(1) + AGENT.chunks(0))

    assert [of_side(utterances, channel) for channel in (0, 1)] == expected


def test_channels_that_wait_for_each_other_in_any_way_are_heard_the_same(expected) -> None:
    rng = random.Random(11)
    utterances, _ = heard(interleaved([AGENT.chunks(0), CUSTOMER.chunks(1)], rng))

    assert [of_side(utterances, channel) for channel in (0, 1)] == expected


def test_a_call_that_comes_all_at_once_is_heard_like_one_that_comes_at_its_pace(expected) -> None:
    utterances, _ = heard(in_turn(AGENT.chunks(0), CUSTOMER.chunks(1)), at_once=True)

    assert [of_side(utterances, channel) for channel in (0, 1)] == expected


def test_a_channel_that_never_comes_takes_nothing_from_the_other(expected) -> None:
    utterances, desk = heard(AGENT.chunks(0))

    assert of_side(utterances, 0) == expected[0]
    assert of_side(utterances, 1) == []
    (ended,) = desk.told("ended")
    assert [total["channel"] for total in ended["totals"]] == [0]


def test_what_one_channel_loses_is_missing_on_its_side_alone(expected) -> None:
    customer = CUSTOMER.chunks(1)
    without = [m for n, m in enumerate(customer) if not 10 <= n < 13]  # 2.0 to 2.6 s

    utterances, desk = heard(in_turn(AGENT.chunks(0), without))

    assert of_side(utterances, 0) == expected[0]
    last = of_side(utterances, 1)[-1]
    assert last == expected[1][-1]  # what follows the loss keeps its place on the clock
    (gap,) = desk.told("gap")
    assert gap["channel"] == 1
    assert (gap["gap"]["start"], gap["gap"]["end"]) == (2.0, 2.6)
