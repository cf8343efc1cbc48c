"""Calls whose messages come in any order, with any numbers, among messages of any kind."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from tests.support.calls import Shape, call, message, placed
from tests.support.fuzz_messages import chunk_message
from tests.support.partitions import Desk
from worker.messages import RawMessage

KEYS: Final = (b"call-1", b"k", b"\xc3\xbc")
_SHAPES: Final = (
    Shape(smallest=1, largest=900),
    Shape(sequences=False),
    Shape(encoding="pcm_s16le", channels=2, smallest=1, largest=3_001),
    Shape(encoding="alaw", channels=2, separate=True),
    Shape(encoding="pcm_s16le", rate=16_000, largest=9_000),
)
_JUMPS: Final = (0, 1, 19, 20, 999, 5_000, 59_999, 60_001, 3_600_000, 2**53, 10**14)


def hostile_log(rng: random.Random) -> list[RawMessage]:
    """Calls that are ended by an `abort` at last, so that nothing of them may stay open."""
    lanes = [_hostile_call(key, rng) for key in rng.sample(KEYS, rng.randint(1, 3))]
    log = []
    while lanes:
        lane = rng.choice(lanes)
        if not lane:
            lanes.remove(lane)
            continue
        log.append(lane.pop(0))
        if rng.random() < 0.3:
            log.append(chunk_message(rng, KEYS))
    _shuffle(log, rng)
    open_keys = dict.fromkeys(raw.key for raw in log if raw.key)
    log += [replace(message("", None, {"event": "abort"}), key=key) for key in open_keys]
    return placed(log, rng)


def _hostile_call(key: bytes, rng: random.Random) -> list[RawMessage]:
    lane = call("", rng.choice(_SHAPES), rng.uniform(0.1, 2.5), rng)
    stated = rng.random() < 0.5
    at = 0
    for number, raw in enumerate(lane):
        headers = dict(raw.headers)
        if stated:
            if rng.random() < 0.05:
                at = rng.choice(_JUMPS)
            headers["position_ms"] = str(at).encode()
            at += rng.choice((0, 1, 40, 100))
        if rng.random() < 0.05:
            headers["sequence"] = str(rng.choice((*_JUMPS, number + 5))).encode()
        if rng.random() < 0.05:
            headers["encoding"] = rng.choice((b"alaw", b"pcm_u8", b"pcm_f32le"))
        lane[number] = replace(raw, key=key, headers=tuple(headers.items()))
        if rng.random() < 0.05:
            lane[number] = replace(lane[number], value=(raw.value or b"") + b"\0")
    if rng.random() < 0.5:
        lane = [raw for raw in lane if rng.random() > 0.1]
    return lane


def _shuffle(log: list[RawMessage], rng: random.Random) -> None:
    """Messages come some places late, or twice."""
    for _ in range(rng.randrange(1 + len(log) // 2)):
        at = rng.randrange(len(log))
        raw = log[at] if rng.random() < 0.3 else log.pop(at)
        log.insert(min(len(log), at + rng.randint(1, 12)), raw)


def check_log(log: list[RawMessage], rng: random.Random) -> Desk:
    """Reads a log to its end: nothing raises, and every message is done with."""
    desk = Desk(log)
    if rng.random() < 0.5:
        while desk.position < len(log):
            desk.deliver(rng.randint(1, 9))
            if rng.random() < 0.5:
                desk.speech.step(rng.randint(1, 3))
                desk.outbox.acknowledge(rng.randint(1, 5))
            if rng.random() < 0.1:
                desk.commit()
    desk.run()
    assert desk.committed.offset == log[-1].offset + 1
    assert not list(desk.partition.sessions.all())
    assert not desk.speech.open_requests
    refused = [dict(record.headers)["source.offset"] for record in desk.dead_letters()]
    assert len(set(refused)) == len(refused)
    assert sum(desk.counts.outcomes.values()) == len(log)
    _check_totals(desk)
    return desk


def _check_totals(desk: Desk) -> None:
    for ended in desk.told("ended"):
        for totals in ended["totals"]:
            assert _samples(totals["received"]) == (
                _samples(totals["decoded"])
                + _samples(totals["silence"])
                + sum(map(_samples, totals.get("dropped", {}).values()))
            ), totals


def _samples(amount: dict[str, Any]) -> int:
    samples = amount["samples"]
    assert isinstance(samples, int)
    assert samples >= 0
    return samples
