"""Memory of open streams: of many that wait for audio, and of one that goes on for an hour.

`python benchmarks/open_streams.py [--streams N] [--minutes 60]` prints one JSON line with the bytes
of each open stream in the pool and parked, what moving one takes, and how the resident memory of a
long stream grows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

WARM_UP_MINUTES = 5


def resident_mib() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def speech(seconds: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (0.05 * rng.standard_normal(int(16_000 * seconds))).astype(np.float32)


def open_streams(count: int) -> dict[str, float]:
    """`count` streams of 4 s that are open and idle, beside 8 slots and a pool for 8."""
    engine = ASREngine(EngineConfig(num_left_chunks=4, max_batch_size=8, max_num_blocks=8 * 6))
    audio = speech(4.0)
    engine.add_streaming_request("warm")
    engine.feed_chunk("warm", audio, is_last=True)
    engine.run()
    before = resident_mib()
    for number in range(count):
        engine.feed_chunk(engine.add_streaming_request(str(number)), audio)
    engine.run()
    caches = engine._family.runner.caches
    parked, parked_bytes = count - caches.slots.num_used, caches.parked_bytes
    resident = list(caches._resident)
    started_s = time.perf_counter()
    for cache in resident:
        caches.park(cache)
    park_s = time.perf_counter() - started_s
    return {
        "streams": count,
        "parked": parked,
        "block_bytes": caches.kv.nbytes / caches.kv.pool.num_blocks,
        "parked_bytes_each": parked_bytes / max(1, parked),
        "resident_kib_each": 1024 * (resident_mib() - before) / count,
        "park_us": 1e6 * park_s / max(1, len(resident)),
    }


def long_stream(minutes: int) -> dict[str, float]:
    """One stream that never ends, fed 10 s at a time."""
    engine = ASREngine(EngineConfig(num_left_chunks=4))
    engine.add_streaming_request("long")
    audio = speech(10.0)
    sizes: list[float] = []
    for turn in range(6 * minutes):
        engine.feed_chunk("long", audio)
        engine.step()
        if turn % 6 == 5:
            sizes.append(resident_mib())
            sys.stderr.write(f"\r{len(sizes)} of {minutes} minutes")
    sys.stderr.write("\n")
    warm = sizes[min(WARM_UP_MINUTES, len(sizes)) - 1]
    return {"minutes": minutes, "resident_mib": sizes[-1], "grown_mib": sizes[-1] - warm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = {"benchmark": "open_streams", **open_streams(arguments.streams)}
    if arguments.minutes:
        found |= long_stream(arguments.minutes)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
