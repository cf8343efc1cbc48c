"""Whatever happens to owners, the topics tell the same: the commit rule as properties."""

from __future__ import annotations

import random
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import Shape, call, placed
from tests.support.disturbed import SHAPES, random_log
from tests.support.partitions import Desk
from worker.messages import RawMessage
from worker.session_map import key_hash


def one_move(desk: Desk, rng: random.Random) -> None:
    """Something that happens to a worker."""
    move = rng.random()
    if move < 0.55:
        desk.deliver(rng.choice([1, 1, 2, 5, 20]))
    elif move < 0.7:
        rng.shuffle(desk.speech.finished)
        desk.speech.step(rng.choice([1, 2, 100]))
    elif move < 0.85:
        # Finals and events are on different topics: their acknowledgements overtake each other.
        rng.shuffle(desk.outbox.waiting)
        desk.outbox.acknowledge(rng.choice([1, 2, 100]))
    elif move < 0.95:
        desk.commit()
    else:
        desk.take_over()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 32))
def test_owners_that_die_at_any_moment_publish_what_an_undisturbed_one_does(seed: int) -> None:
    rng = random.Random(seed)
    _dies_often(random_log(rng), rng, key_hash)


@pytest.mark.parametrize(("bits", "calls"), [(0, 3), (4, 5)])
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 1 << 32))
def test_keys_with_the_same_hash_lose_and_change_nothing(bits: int, calls: int, seed: int) -> None:
    rng = random.Random(seed)
    _dies_often(random_log(rng, calls), rng, lambda key: key_hash(key) % (1 << bits))


def _dies_often(
    log: list[RawMessage], rng: random.Random, hash_key: Callable[[bytes], int]
) -> None:
    undisturbed = Desk(log)
    undisturbed.run()

    desk = Desk(log, hash_key=hash_key)
    for _ in range(400):
        one_move(desk, rng)
    while desk.position < len(log):
        desk.deliver(3)
        one_move(desk, rng)
    desk.deliver(len(log))
    desk.settle()

    assert desk.finals() == undisturbed.finals()
    assert desk.events() == undisturbed.events()
    assert {orjson.dumps(d.value.hex()) for d in desk.dead_letters()} == {
        orjson.dumps(d.value.hex()) for d in undisturbed.dead_letters()
    }
    assert desk.committed.offset == undisturbed.committed.offset


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 32))
def test_a_commit_never_passes_a_message_whose_records_are_not_acknowledged(seed: int) -> None:
    rng = random.Random(seed)
    desk = Desk(random_log(rng), answering=False)

    for _ in range(200):
        one_move(desk, rng)
        commit = desk.prepare()
        finals = [r for r in desk.all_records() if r.kind.value == "final"]
        firsts = [orjson.loads(r.value)["source"]["first_offset"] for r in finals]
        assert commit.offset <= min(firsts, default=commit.offset)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.encoding}-{shape.channels}")
def test_the_ended_event_accounts_for_every_sample(shape: Shape) -> None:
    rng = random.Random(5)
    messages = call("c", shape, 9.0, rng)
    desk = Desk(placed(messages))

    desk.run()

    ended = [b for b in _bodies(desk) if b["event"] == "ended"]
    assert len(ended) == 1
    received = {t["channel"]: t["received"]["samples"] for t in ended[0]["totals"]}
    assert received == dict.fromkeys(range(shape.channels), 9 * shape.rate)
    for totals in ended[0]["totals"]:
        parts = totals["decoded"]["samples"] + totals["silence"]["samples"]
        assert totals["received"]["samples"] == parts
    assert ended[0]["finals"] == len(desk.finals())
    assert desk.committed.offset == len(messages)


def _bodies(desk: Desk) -> list[dict[str, object]]:
    return [orjson.loads(text) for texts in desk.events().values() for text in texts]
