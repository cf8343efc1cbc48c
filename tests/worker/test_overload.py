"""More audio than the engine can decode: what is behind waits, and nothing of it is dropped."""

from __future__ import annotations

import random

import pytest

from tests.support.calls import Shape, call, interleaved, placed
from tests.support.partitions import Desk
from worker.messages import RawMessage

CALLS = 8
SECONDS = 40.0  # of each call


def overload() -> list[RawMessage]:
    """Calls of both kinds side by side, each with its end."""
    rng = random.Random(37)
    shapes = [Shape(), Shape(channels=2), Shape(channels=2, separate=True)]
    calls = [call(f"call-{n}", shapes[n % 3], SECONDS, rng) for n in range(CALLS)]
    return placed(interleaved(calls, rng))


@pytest.mark.parametrize("heir", [False, True], ids=["one owner", "an heir in the middle"])
def test_of_twice_what_the_engine_decodes_nothing_is_dropped_and_the_totals_balance(
    heir: bool,
) -> None:
    log = overload()
    paced = Desk(log)
    paced.run()
    segments = len(paced.transcripts())
    desk = Desk(log)
    messages_a_segment = len(log) // segments
    waiting: list[int] = []  # texts that the engine still owes, after each segment of audio

    while desk.position < len(log):
        desk.deliver(messages_a_segment)
        desk.speech.step(len(waiting) % 2)  # one text for two segments
        desk.outbox.acknowledge()
        desk.commit()
        waiting.append(len(desk.speech.finished))
        if heir and len(waiting) == segments // 2:
            desk.take_over()
    assert waiting[-1] >= segments // 4  # it fell far behind
    assert desk.committed.offset < len(log) // 2
    desk.settle()

    assert desk.finals() == paced.finals()
    assert desk.committed.offset == len(log)
    assert desk.dead_letters() == []
    endings = desk.told("ended")
    assert sorted(ended["session_id"] for ended in endings) == [f"call-{n}" for n in range(CALLS)]
    assert sum(ended["finals"] for ended in endings) == segments
    for ended in endings:
        assert ended["reason"] == "end"
        for totals in ended["totals"]:
            assert totals["dropped"] == {}
            heard, silent = totals["decoded"]["samples"], totals["silence"]["samples"]
            assert totals["received"]["samples"] == heard + silent >= SECONDS * 8000
