"""Whatever happens to owners, the topics tell the same: the commit rule as properties."""

from __future__ import annotations

import random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import Shape, call, interleaved, message, placed, spoken
from tests.support.partitions import Desk
from worker.messages import RawMessage

SHAPES = (
    Shape(),
    Shape(encoding="pcm_s16le", smallest=1, largest=3001),
    Shape(encoding="alaw", channels=2),
    Shape(encoding="pcm_s16le", channels=2, smallest=7, largest=5003),
    Shape(sequences=False),
    Shape(channels=2, separate=True),
    Shape(encoding="pcm_s16le", rate=16000, largest=20_000),
)


def random_log(rng: random.Random) -> list[RawMessage]:
    """Calls side by side, with repeats, losses, flushes, keep-alives and bad messages."""
    lanes = [random_call(f"call-{number}", rng) for number in range(rng.randint(1, 3))]
    return placed(interleaved(lanes, rng), rng)


def random_call(key: str, rng: random.Random) -> list[RawMessage]:
    """A call in which something is wrong."""
    shape = rng.choice(SHAPES)
    lane = call(key, shape, rng.uniform(1, 14), rng)
    if shape.sequences and not shape.separate:
        lane = _disturbed(lane, rng)
    if shape.separate and rng.random() < 0.5:
        event = {"event": rng.choice(["end", "flush", "keepalive"]), "channel": rng.choice("012")}
        lane.insert(rng.randrange(1, len(lane)), message(key, None, event))
    for likely, raw in (
        (0.3, message(key, None, FLUSH)),
        (0.3, message(key, b"x" * 99, BAD)),
        (0.2, message(key, None, KEEPALIVE)),
    ):
        if rng.random() < likely:
            lane.insert(rng.randrange(1, len(lane)), raw)
    lane = _ended(key, lane, rng)
    if rng.random() < 0.2:
        lane += call(key, rng.choice(SHAPES), 3, rng)
    return lane


def _ended(key: str, lane: list[RawMessage], rng: random.Random) -> list[RawMessage]:
    end = rng.random()
    if end < 0.2:
        return [*lane[:-1], message(key, None, {"event": "abort"})]
    if end < 0.35:
        return lane[:-1]
    if end < 0.5:
        # The end carries the last audio; in another format it ends two origins.
        last = {"encoding": rng.choice(["mulaw", "alaw"]), "sample_rate": 8000, "event": "end"}
        return [*lane[:-1], message(key, spoken(0.4), last)]
    return lane


FLUSH = {"event": "flush"}
KEEPALIVE = {"event": "keepalive"}
BAD = {"encoding": "opus", "sample_rate": 8000}


def _disturbed(lane: list[RawMessage], rng: random.Random) -> list[RawMessage]:
    disturbed = []
    for raw in lane[:-1]:
        if rng.random() < 0.03 and disturbed:
            continue
        disturbed.append(raw)
        if rng.random() < 0.05:
            disturbed.append(rng.choice(disturbed))
    return [*disturbed, lane[-1]]


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
    log = random_log(rng)
    undisturbed = Desk(log)
    undisturbed.run()

    desk = Desk(log)
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
