"""Whatever happens to owners and transactions, readers see each record once: as properties."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.disturbed import random_log
from tests.support.partitions import Desk, header
from tests.support.transaction_desk import TransactionDesk
from worker.messages import Kind


def one_move(desk: TransactionDesk, rng: random.Random) -> None:
    """Something that happens to workers, or to their brokers."""
    owner = desk.owner
    move = rng.random()
    if move < 0.45:
        owner.deliver(rng.choice([1, 1, 2, 5, 20]))
    elif move < 0.55:
        rng.shuffle(owner.speech.finished)
        owner.speech.step(rng.choice([1, 2, 100]))
    elif move < 0.7:
        owner.tick(rng.choice([0.05, 0.2, 1.0]))
    elif move < 0.85:
        desk.broker(owner)
    elif move < 0.88:
        desk.kill()
    elif move < 0.9:
        desk.freeze()
    elif move < 0.92:
        desk.hand_over()
    else:
        desk.thaw()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_owners_that_die_freeze_and_leave_tell_what_an_undisturbed_one_does_and_each_of_it_once(
    seed: int,
) -> None:
    rng = random.Random(seed)
    log = random_log(rng)
    undisturbed = Desk(log)
    undisturbed.run()

    desk = TransactionDesk(log, rng)
    for _ in range(400):
        one_move(desk, rng)
    desk.settle()

    for kind in (Kind.FINAL, Kind.EVENT):
        told = Counter(header(r, "ce_id") for r in desk.visible if r.kind is kind)
        assert set(told.values()) <= {1}, [name for name, times in told.items() if times > 1]
    assert desk.said(Kind.FINAL) == undisturbed.finals()
    assert desk.said(Kind.EVENT) == undisturbed.events()
    letters = [r.value for r in desk.visible if r.kind is Kind.DEAD_LETTER]
    assert Counter(letters) == Counter(r.value for r in undisturbed.dead_letters())
    assert desk.committed is not None
    assert desk.committed.offset == undisturbed.committed.offset
