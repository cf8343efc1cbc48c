"""A map that was damaged is ignored whole: all above the commit is heard, and nothing is skipped.

Keys have hashes of few bits, so that what is left of other maps would hit the wrong calls.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import Shape, call, interleaved, placed
from tests.support.lane_desk import LaneDesk
from tests.support.partitions import Committed, header
from worker.messages import Kind, RawMessage
from worker.session_map import key_hash

CALLS = 4
HASH_BITS = 2
ROOM = 4095
SHAPES = (Shape(), Shape(channels=2), Shape(encoding="pcm_s16le", sequences=False))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def truncated(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(1, len(text))]


def flipped(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice([c for c in LETTERS if c != text[at]]) + text[at + 1 :]


def of_another_version(text: str, rng: random.Random) -> str:
    return f"oasr{rng.randint(3, 99)}:" + text.partition(":")[2]


def with_another_checksum(text: str, rng: random.Random) -> str:
    magic, _, body = text.partition(":")
    data = bytearray(base64.b64decode(body + "=" * (-len(body) % 4)))
    for at in range(1, 5):
        data[at] ^= rng.randint(1, 255)
    return f"{magic}:{base64.b64encode(bytes(data)).decode().rstrip('=')}"


def noise(text: str, rng: random.Random) -> str:
    return "oasr1:" + "".join(rng.choices(LETTERS, k=len(text)))


def of_kafka_streams(_text: str, rng: random.Random) -> str:
    """What another kind of client would have written into the same group."""
    return base64.b64encode(bytes([2, *rng.randbytes(8)])).decode()


DAMAGES: dict[str, Callable[[str, random.Random], str]] = {
    "truncated": truncated,
    "flipped": flipped,
    "of another version": of_another_version,
    "with another checksum": with_another_checksum,
    "noise": noise,
    "of Kafka Streams": of_kafka_streams,
}


def log_of_calls(rng: random.Random) -> list[RawMessage]:
    """Calls side by side, each with its end."""
    lanes = [call(f"call-{n}", rng.choice(SHAPES), rng.uniform(1, 5), rng) for n in range(CALLS)]
    return placed(interleaved(lanes, rng), rng)


def work(desk: LaneDesk, rng: random.Random) -> None:
    """Some turns of an owner, who has begun and committed by then."""
    for _ in range(rng.randint(5, 40)):
        desk.deliver(rng.choice([1, 2, 5]))
        if rng.random() < 0.5:
            desk.owned.speech.step()
            desk.outbox.acknowledge()
        if rng.random() < 0.4:
            desk.tick()
            desk.broker()
    desk.tick()
    desk.broker()


def damage(desk: LaneDesk, kind: str, rng: random.Random) -> int:
    """Damage the map that the group has; the committed offset, which stays."""
    assert desk.committed is not None
    offset, metadata = desk.committed.offset, desk.committed.metadata
    desk.committed = Committed(offset, DAMAGES[kind](metadata, rng))
    return offset


def ended(desk: LaneDesk) -> set[str]:
    """The sessions that were told to have ended."""
    told = [r for r in desk.records + desk.outbox.on_topic if r.kind is Kind.EVENT]
    return {header(r, "ce_subject") for r in told if b'"event":"ended"' in r.value}


@pytest.mark.parametrize("kind", DAMAGES)
@settings(deadline=None, max_examples=3)
@given(seed=st.integers(0, 1 << 32))
def test_after_a_damaged_map_everything_above_the_commit_is_heard(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    log = log_of_calls(rng)
    desk = LaneDesk(log, ROOM, lambda key: key_hash(key) % (1 << HASH_BITS))
    committed = 0
    for ignored in (1, 2):
        work(desk, rng)
        committed = damage(desk, kind, rng)
        desk.take_over_as_it_is()
        assert desk.counts.ignored_maps == ignored
        work(desk, rng)
        # The heir takes no message for finished.
        assert "skipped" not in desk.owned.counts.outcomes

    desk.settle()

    assert desk.committed is not None
    assert desk.committed.offset == log[-1].offset + 1
    heard_again = {raw.key for raw in log if raw.offset >= committed and raw.value}
    assert ended(desk) >= {key.decode() for key in heard_again if key is not None}
