"""One worker loses a partition and gets it back, again and again, with calls open on it."""

from __future__ import annotations

import random

import pytest

from tests.support.disturbed import random_log
from tests.support.lane_desk import LaneDesk
from tests.support.partitions import Desk
from worker.commits import CommitResult
from worker.messages import Kind

CYCLES = 100
FITS, BY_REFERENCE = 4095, 8


class Cycling(LaneDesk):
    """A lane whose partition goes and comes back to it."""

    def cycle(self, rng: random.Random) -> None:
        """Revoke and assign; the answers to the commits of before come late or not at all."""
        self.lane.revoked([0])
        assert not self.lane.partitions
        unanswered = len(self.reader.commits)
        for commit in self.reader.commits:
            self._apply(*commit)
        self.reader.commits.clear()
        self.reader.resume([0])
        late = rng.choice([True, False])
        if not late:
            self._answer(unanswered)
        self.owned.assign(self.committed)
        if late:
            self._answer(unanswered)

    def _answer(self, number: int) -> None:
        for _ in range(number):
            self.lane.commit_answered(0, CommitResult.DONE)


@pytest.mark.parametrize("max_chars", [FITS, BY_REFERENCE])
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_revocations_and_assignments_lose_and_change_nothing(
    seed: int, max_chars: int
) -> None:
    rng = random.Random(seed)
    log = random_log(rng, most_calls=6)
    undisturbed = Desk(log)
    undisturbed.run()
    desk = Cycling(log, max_chars)
    desk.broker()

    for _ in range(CYCLES):
        for _ in range(rng.choice([0, 1, 4, 12])):
            desk.find()
            desk.broker()
            desk.deliver(rng.choice([1, 5, 20]))
            desk.speech.step(rng.choice([1, 100]))
            desk.outbox.acknowledge(rng.choice([1, 100]))
            desk.tick()
            desk.write()
        desk.cycle(rng)
    assert desk.committed is not None
    assert desk.committed.offset > 0, "the cycles make no headway"
    desk.settle()

    assert desk.said(Kind.FINAL) == undisturbed.finals()
    assert desk.said(Kind.EVENT) == undisturbed.events()
    assert desk.committed.offset == undisturbed.committed.offset
    assert desk.counts.ignored_maps == 0
    assert desk.counts.rebalances.count(("revoked", 0)) == CYCLES
