"""Time-outs and limits beside deaths: everything is told once, and nothing is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import Shape, call, interleaved, placed
from tests.support.partitions import Desk
from worker.messages import RawMessage
from worker.ports import Limits

IDLE_S, TTL_S = 5.0, 40.0
# A byte is a sample: an end between the messages of a frame would lose the frame.
SHAPES = (
    Shape(),
    Shape(encoding="alaw", smallest=40, largest=900),
    Shape(sequences=False),
    Shape(channels=2, separate=True),
)


def the_log(rng: random.Random) -> list[RawMessage]:
    """Calls side by side, some of which never end."""
    lanes = []
    for number in range(rng.randint(1, 3)):
        lane = call(f"call-{number}", rng.choice(SHAPES), rng.uniform(1, 9), rng)
        lanes.append(lane if rng.random() < 0.5 else lane[:-1])
    return placed(interleaved(lanes, rng), rng)


def one_move(desk: Desk, left: list[RawMessage], rng: random.Random) -> None:
    """Something that happens to a worker, to its producers or to time."""
    move = rng.random()
    if move < 0.4 and left:
        for _ in range(min(len(left), rng.choice([1, 1, 2, 8]))):
            desk.log.append(left.pop(0))
        desk.deliver(rng.choice([1, 2, 100]))
    elif move < 0.5:
        desk.deliver(rng.choice([1, 20]))
    elif move < 0.62:
        desk.wait(rng.choice([0.1, 1.0, IDLE_S, IDLE_S, TTL_S]))
    elif move < 0.74:
        rng.shuffle(desk.speech.finished)
        desk.speech.step(rng.choice([1, 100]))
    elif move < 0.84:
        rng.shuffle(desk.outbox.waiting)
        desk.outbox.acknowledge(rng.choice([1, 100]))
    elif move < 0.94:
        desk.commit()
    else:
        desk.take_over()


def played(seed: int, limits: Limits) -> tuple[Desk, list[RawMessage]]:
    """A partition after all of it, when nothing is open any more; and what was sent."""
    rng = random.Random(seed)
    sent = the_log(rng)
    left = list(sent)
    desk = Desk([], limits)
    for _ in range(150):
        one_move(desk, left, rng)
    while left:
        one_move(desk, left, rng)
    desk.deliver(len(desk.log))
    for _ in range(4):
        desk.settle()
        desk.wait(2 * TTL_S)
    desk.settle()
    return desk, sent


def samples_of(messages: list[RawMessage]) -> int:
    """Samples of all channels together."""
    return sum(len(raw.value or b"") for raw in messages)


def overlaps(finals: list[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """Finals of one channel and origin that share audio, told apart by their ids."""
    spans: dict[Any, set[tuple[int, int]]] = {}
    for final in finals:
        origin = final["segment_id"].rsplit(":", 2)[0]
        place = (origin, final["channel"])
        spans.setdefault(place, set()).add((final["start_sample"], final["end_sample"]))
    for place, found in spans.items():
        ordered = sorted(found)
        for before, after in itertools.pairwise(ordered):
            if after[0] < before[1]:
                yield place, (before, after)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 1 << 32))
def test_idle_cuts_and_time_outs_tell_everything_once_whenever_owners_die(seed: int) -> None:
    desk, sent = played(seed, Limits(idle_finalize_s=IDLE_S, session_ttl_s=TTL_S))

    assert all(len(texts) == 1 for texts in desk.finals().values())
    assert all(len(texts) == 1 for texts in desk.events().values())
    assert list(overlaps(desk.transcripts())) == []
    ended = desk.told("ended")
    totals = [channel for event in ended for channel in event["totals"]]
    assert sum(channel["received"]["samples"] for channel in totals) == samples_of(sent)
    assert len(ended) == len([*desk.told("started"), *desk.told("resumed")])
    assert desk.partition.sessions.all() == []
    assert desk.committed.offset == desk.log[-1].offset + 1


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 1 << 32))
def test_so_does_the_limit_of_sessions(seed: int) -> None:
    limits = Limits(idle_finalize_s=IDLE_S, session_ttl_s=TTL_S, max_sessions=1)
    desk, sent = played(seed, limits)

    assert all(len(texts) == 1 for texts in desk.finals().values())
    assert all(len(texts) == 1 for texts in desk.events().values())
    assert list(overlaps(desk.transcripts())) == []
    totals = [channel for event in desk.told("ended") for channel in event["totals"]]
    heard = sum(channel["received"]["samples"] for channel in totals)
    refused = {dict(letter.headers)["source.offset"] for letter in desk.dead_letters()}
    lost = [raw for raw in sent if str(raw.offset).encode() in refused]
    assert samples_of(sent) - samples_of(lost) <= heard <= samples_of(sent)
    assert desk.partition.sessions.all() == []
    assert desk.committed.offset == desk.log[-1].offset + 1
