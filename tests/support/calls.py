"""Calls as messages of the chunk topic, made from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from oasr.audio import g711
from tests.support.signals import Int16Array, conversation, silence, speech
from worker.messages import RawMessage


@dataclass(frozen=True)
class Shape:
    """How a call comes; chunk sizes are bytes."""

    encoding: str = "mulaw"
    rate: int = 8000
    channels: int = 1
    sequences: bool = True
    smallest: int = 400
    largest: int = 4000
    separate: bool = False


def encoded(samples: Int16Array, encoding: str) -> bytes:
    """Samples in a wire encoding."""
    if encoding == "mulaw":
        return g711.linear_to_mulaw(samples)
    if encoding == "alaw":
        return g711.linear_to_alaw(samples)
    return samples.astype("<i2").tobytes()


def message(
    key: str, value: bytes | None, headers: dict[str, object], timestamp_ms: int = 1
) -> RawMessage:
    """A message without a place; `placed` gives it one."""
    pairs = tuple((name, str(text).encode()) for name, text in headers.items())
    return RawMessage("chunks", 0, -1, timestamp_ms, key.encode(), value, pairs)


def chunk(key: str, value: bytes | None, **headers: object) -> RawMessage:
    """A mono µ-law message at 8 kHz without a place."""
    return message(key, value, {"encoding": "mulaw", "sample_rate": 8000, **headers})


def control(key: str, event: str, **headers: object) -> RawMessage:
    """A message without audio and without a place."""
    return message(key, None, {"event": event, **headers})


def spoken(seconds: float, encoding: str = "mulaw", rate: int = 8000, seed: int = 1) -> bytes:
    """Speech without a pause."""
    return encoded(speech(seconds, rate, seed=seed), encoding)


def hushed(seconds: float, encoding: str = "mulaw", rate: int = 8000) -> bytes:
    """Digital silence."""
    return encoded(silence(seconds, rate), encoding)


def call(key: str, shape: Shape, seconds: float, rng: random.Random) -> list[RawMessage]:
    """The messages of a call, its end event last."""
    tracks = [
        conversation(seconds, shape.rate, rng.randrange(1 << 20)) for _ in range(shape.channels)
    ]
    if shape.separate:
        return _separate(key, shape, tracks, rng)
    audio = encoded(np.stack(tracks, axis=1).reshape(-1), shape.encoding)
    common = {
        "encoding": shape.encoding,
        "sample_rate": shape.rate,
        "channels": shape.channels,
        "roles": ",".join(["agent", "customer"][: shape.channels]),
    }
    messages = []
    for number, chunk in enumerate(_pieces(audio, shape, rng)):
        sequence = {"sequence": number} if shape.sequences else {}
        messages.append(message(key, chunk, {**common, **sequence}))
    sequence = {"sequence": len(messages)} if shape.sequences else {}
    messages.append(message(key, None, {"event": "end", **sequence}))
    return messages


def _separate(
    key: str, shape: Shape, tracks: list[Int16Array], rng: random.Random
) -> list[RawMessage]:
    lanes = []
    for index, track in enumerate(tracks):
        headers = {
            "encoding": shape.encoding,
            "sample_rate": shape.rate,
            "channels": len(tracks),
            "channel": index,
        }
        pieces = _pieces(encoded(track, shape.encoding), shape, rng)
        lanes.append([message(key, p, {**headers, "sequence": n}) for n, p in enumerate(pieces)])
    return [*interleaved(lanes, rng), message(key, None, {"event": "end"})]


def _pieces(audio: bytes, shape: Shape, rng: random.Random) -> list[bytes]:
    pieces = []
    at = 0
    while at < len(audio):
        size = rng.randint(shape.smallest, shape.largest)
        pieces.append(audio[at : at + size])
        at += size
    return pieces


def interleaved(lanes: list[list[RawMessage]], rng: random.Random) -> list[RawMessage]:
    """The messages of all lanes, each lane in its order."""
    lanes = [list(lane) for lane in lanes if lane]
    merged = []
    while lanes:
        lane = rng.choice(lanes)
        merged.append(lane.pop(0))
        lanes = [rest for rest in lanes if rest]
    return merged


def placed(messages: list[RawMessage], rng: random.Random | None = None) -> list[RawMessage]:
    """The messages as a partition holds them; with `rng`, offsets have gaps."""
    offset = 0
    log = []
    for raw in messages:
        offset += 0 if rng is None or rng.random() < 0.9 else rng.randint(1, 3)
        log.append(
            RawMessage(raw.topic, 0, offset, raw.timestamp_ms, raw.key, raw.value, raw.headers)
        )
        offset += 1
    return log
