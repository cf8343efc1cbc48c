"""One call of an hour, faster than real time: nothing grows, nothing is cut off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

import pytest

from tests.support.kafka import (
    Message,
    Topics,
    WorkerProcess,
    as_checked,
    consume_all,
    consumer,
    produce,
)
from tests.support.worker_calls import CALLS, all_ended, body, call_messages, ended
from worker.call_files import CallAudio, read_call

MINUTES = 60
SPEED_AT_LEAST = 10


def hour_of_speech() -> CallAudio:
    """A stereo call of an hour made of bundled calls, 8 kHz µ-law."""
    parts = [read_call(path) for path in CALLS]
    frames = MINUTES * 60 * 8000
    data = b"".join(part.data for part in parts)
    repeats = -(-frames * 2 // len(data))
    return replace(parts[0], data=(data * repeats)[: frames * 2])


def resident_bytes(worker: WorkerProcess) -> int:
    """Resident memory of the worker's process."""
    with open(f"/proc/{worker.process.pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
    raise AssertionError("the kernel tells no resident size")


def minutes_of_finals(broker: str, topic: str, timeout_s: float) -> Iterator[int]:
    """The media minute of each final as it comes."""
    reader = consumer(broker, f"{topic}-minutes")
    reader.subscribe([topic])
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            for message in reader.consume(100, 0.1):
                if message.error() is None:
                    yield int(float(str(body(as_checked(message))["end"])) // 60)
    finally:
        reader.close()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_an_hour_long_call_keeps_memory_flat_and_loses_nothing(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    messages: list[Message] = call_messages(topics, "hour", hour_of_speech(), chunk_ms=1000)
    produce(broker, messages, timeout_s=120)
    sizes: dict[int, int] = {}

    with worker_process(topics, "hour") as worker:
        started_s = time.monotonic()
        for minute in minutes_of_finals(broker, topics.transcripts, timeout_s=360):
            if minute not in sizes:
                sizes[minute] = resident_bytes(worker)
            if minute >= MINUTES - 1:
                break
        took_s = time.monotonic() - started_s
        consume_all(broker, topics.events, all_ended(1), timeout_s=60)

    # A worker that works off a backlog pauses and resumes its partition, so its memory swings
    # with the audio in flight: the medians show growth, and the swings have their own bound.
    early, late = (
        [size for minute, size in sizes.items() if first <= minute < first + 15]
        for first in (5, MINUTES - 15)
    )
    assert min(len(early), len(late)) >= 8
    assert median(late) < 1.05 * median(early)
    assert max(early + late) < 1.15 * median(early)
    assert took_s < MINUTES * 60 / SPEED_AT_LEAST
    event = ended(consume_all(broker, topics.events))["hour"]
    finals = [body(raw) for raw in consume_all(broker, topics.transcripts)]
    assert event["finals"] == len(finals)
    totals = event["totals"]
    assert isinstance(totals, list)
    for channel in totals:
        assert channel["received"]["samples"] == MINUTES * 60 * 8000
    per_call = sum(float(str(f["end"])) <= 600 for f in finals) / 10
    # The recordings repeat, so every ten minutes hold as many finals as the first.
    for start in range(0, MINUTES, 10):
        here = sum(start * 60 < float(str(f["end"])) <= (start + 10) * 60 for f in finals)
        assert abs(here / 10 - per_call) <= 0.05 * per_call + 0.2
