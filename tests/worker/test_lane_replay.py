"""The commit rule once more, through lanes: with maps by reference and answers in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.disturbed import random_log
from tests.support.lane_desk import LaneDesk
from tests.support.partitions import Desk
from worker.commits import CommitResult
from worker.messages import Kind
from worker.state_reference import MAGIC

ALWAYS_BY_REFERENCE = 8
SOME_BY_REFERENCE = 90


def one_move(desk: LaneDesk, rng: random.Random) -> None:
    """Something that happens to a worker or to its broker."""
    move = rng.random()
    if move < 0.45:
        desk.deliver(rng.choice([1, 1, 2, 5, 20]))
    elif move < 0.55:
        rng.shuffle(desk.speech.finished)
        desk.speech.step(rng.choice([1, 2, 100]))
    elif move < 0.65:
        rng.shuffle(desk.outbox.waiting)
        desk.outbox.acknowledge(rng.choice([1, 2, 100]))
    elif move < 0.75:
        desk.tick()
    elif move < 0.85:
        desk.broker(rng.choice([CommitResult.DONE] * 4 + [CommitResult.RETRY]))
    elif move < 0.92:
        desk.write(failed=rng.random() < 0.2)
    elif move < 0.96:
        desk.find()
    elif move < 0.98:
        desk.take_over(rng)
    else:
        desk.hand_over()


@pytest.mark.parametrize("max_chars", [ALWAYS_BY_REFERENCE, SOME_BY_REFERENCE])
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 1 << 32))
def test_owners_that_come_and_go_publish_what_an_undisturbed_one_does(
    max_chars: int, seed: int
) -> None:
    rng = random.Random(seed)
    log = random_log(rng)
    undisturbed = Desk(log)
    undisturbed.run()

    desk = LaneDesk(log, max_chars)
    for _ in range(400):
        one_move(desk, rng)
    desk.settle()

    assert desk.said(Kind.FINAL) == undisturbed.finals()
    assert desk.said(Kind.EVENT) == undisturbed.events()
    assert desk.committed is not None
    assert desk.committed.offset == undisturbed.committed.offset
    assert desk.counts.ignored_maps == 0
    if max_chars == ALWAYS_BY_REFERENCE:
        assert desk.by_reference > 0
        assert desk.committed.metadata.startswith(MAGIC)
