"""Logs of calls in which something is wrong: repeats, losses, flushes, bad messages, odd ends."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.support.calls import Shape, call, interleaved, message, placed, spoken
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


def random_log(rng: random.Random, most_calls: int = 3) -> list[RawMessage]:
    """Calls side by side, with repeats, losses, flushes, keep-alives and bad messages."""
    lanes = [random_call(f"call-{number}", rng) for number in range(rng.randint(1, most_calls))]
    return placed(interleaved(lanes, rng), rng)


def random_call(key: str, rng: random.Random) -> list[RawMessage]:
    """A call in which something is wrong."""
    shape = rng.choice(SHAPES)
    lane = call(key, shape, rng.uniform(1, 14), rng)
    if rng.random() < 0.5:
        lane = timed(lane, shape, rng)
    if shape.sequences:
        lane = _disturbed(lane, rng)
        if rng.random() < 0.7:
            lane = reordered(lane, rng)
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


def timed(
    lane: list[RawMessage], shape: Shape, rng: random.Random, likely: float = 0.05
) -> list[RawMessage]:
    """The messages with their media times; in between, the producer sometimes sends nothing."""
    byte_rate = shape.rate * (1 if shape.encoding in ("mulaw", "alaw") else 2)
    byte_rate *= 1 if shape.separate else shape.channels
    sent: dict[bytes, int] = {}  # bytes so far, by channel
    paused_ms, messages = 0, []
    for raw in lane:
        if raw.value:
            channel = dict(raw.headers).get("channel", b"")
            media_ms = sent.get(channel, 0) * 1000 // byte_rate
            sent[channel] = sent.get(channel, 0) + len(raw.value)
            paused_ms += rng.choice([90, 400, 3000, 14_000]) if rng.random() < likely else 0
            stated = ("position_ms", str(media_ms + paused_ms).encode())
            if rng.random() < likely / 3:
                discarded_ms = rng.choice([100, 2000, 20_000])
                paused_ms += discarded_ms
                messages.append(_discarded(raw, discarded_ms))
                stated = ("position_ms", str(media_ms + paused_ms).encode())
            messages.append(replace(raw, headers=(*raw.headers, stated)))
        else:
            messages.append(raw)
    return messages


def _discarded(raw: RawMessage, discarded_ms: int) -> RawMessage:
    """What tells that audio before a message was not recorded."""
    headers = [("event", b"keepalive"), ("discarded_ms", str(discarded_ms).encode())]
    headers += [pair for pair in raw.headers if pair[0] in ("channel", "channels")]
    return replace(raw, value=None, headers=tuple(headers))


def reordered(lane: list[RawMessage], rng: random.Random, most: int = 12) -> list[RawMessage]:
    """Some messages of a lane come later than up to `most` that follow them; the last one last."""
    places = [(n + rng.choice([0, 0, 0, rng.uniform(0, most)]), raw) for n, raw in enumerate(lane)]
    return [*(raw for _, raw in sorted(places[:-1], key=lambda place: place[0])), lane[-1]]


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
