"""Load for the streaming benchmarks: speech, and ways to play it to many streams."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import soundfile
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
WINDOW = SAMPLE_RATE * 640 // 1000
LISTS = Path(__file__).parents[1] / "tests" / "data" / "testsets"

Samples = NDArray[np.float32]


class Recognizer(Protocol):
    """An engine as the benchmarks see it."""

    def open(self, streams: int) -> None:
        """Begin with `streams` new streams, numbered from 0."""

    def feed(self, stream: int, samples: Samples, is_last: bool) -> None:
        """More samples of a stream."""

    def decode(self) -> bool:
        """Decode what is there; whether there was anything."""


def speech(samples: int) -> Samples:
    """`samples` samples of the phrases of the test list, one after the other."""
    entries = json.loads((LISTS / "phrases" / "reference.json").read_text(encoding="utf-8"))
    pieces: list[Samples] = []
    missing = samples
    while missing > 0:
        for entry in entries:
            piece = soundfile.read(LISTS / "phrases" / entry["file"], dtype="float32")[0]
            pieces.append(piece[:missing])
            missing -= len(pieces[-1])
            if missing <= 0:
                break
    return np.concatenate(pieces)


def rotations(samples: int, streams: int) -> list[Samples]:
    """The same speech for each stream, each beginning at another place."""
    audio = speech(samples)
    return [np.roll(audio, -number * 16_001) for number in range(streams)]


def backlog(recognizer: Recognizer, feeds: Sequence[Samples]) -> dict[str, float]:
    """All audio is there at once: how many times faster it is decoded than it plays."""
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    recognizer.open(len(feeds))
    for stream, feed in enumerate(feeds):
        recognizer.feed(stream, feed, True)
    while recognizer.decode():
        pass
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    return {"audio_s": sum(map(len, feeds)) / SAMPLE_RATE, "wall_s": wall_s, "cpu_s": cpu_s}


def paced(recognizer: Recognizer, feeds: Sequence[Samples], piece_ms: int) -> dict[str, float]:
    """Audio comes as it plays, in pieces; the streams' windows fill at different times.

    `busy_ms` are the times for which what a piece completed kept the engine busy.
    """
    piece = piece_ms * SAMPLE_RATE // 1000
    heads = [WINDOW * stream // len(feeds) for stream in range(len(feeds))]
    recognizer.open(len(feeds))
    for stream, (feed, head) in enumerate(zip(feeds, heads, strict=True)):
        recognizer.feed(stream, feed[:head], False)
    turns = (len(feeds[0]) - WINDOW) // piece
    busy_ms: list[float] = []
    late = 0
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    for turn in range(turns):
        wait_s = started_s + turn * piece_ms / 1000 - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        begun_s = time.perf_counter()
        for stream, (feed, head) in enumerate(zip(feeds, heads, strict=True)):
            begin = head + turn * piece
            recognizer.feed(stream, feed[begin : begin + piece], turn == turns - 1)
        was_busy = False
        while recognizer.decode():
            was_busy = True
        if was_busy:
            busy_ms.append((time.perf_counter() - begun_s) * 1000)
        late += time.perf_counter() > started_s + (turn + 1) * piece_ms / 1000
    wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    return {
        "audio_s": len(feeds) * turns * piece_ms / 1000,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "busy_p50_ms": float(np.percentile(busy_ms, 50)),
        "busy_p99_ms": float(np.percentile(busy_ms, 99)),
        "late_turns": late / turns,
    }
