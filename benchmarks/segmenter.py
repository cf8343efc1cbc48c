"""CPU time of the segmenter for live 100 ms chunks and for files; prints one JSON line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oasr.audio.containers import read_blocks
from oasr.audio.segmenter import Segmenter, SegmenterConfig

CALL = Path(__file__).parents[1] / "worker/assets/calls/call-00.wav"
ROUNDS = 5


def channels_of(path: Path) -> tuple[int, list[npt.NDArray[np.int16]]]:
    """Media rate and the channels of a recording."""
    info, blocks = read_blocks(path)
    frames = np.concatenate(list(blocks))
    return info.sample_rate, [np.ascontiguousarray(channel) for channel in frames.T]


def microseconds_per_feed(chunk_ms: int) -> float:
    """Best mean over some rounds, one feed being one chunk of one channel."""
    rate, channels = channels_of(CALL)
    chunk_samples = rate * chunk_ms // 1000
    chunks = [
        samples[begin : begin + chunk_samples]
        for samples in channels
        for begin in range(0, len(samples), chunk_samples)
    ]
    means = []
    for _ in range(ROUNDS):
        segmenter = Segmenter(rate, 0, SegmenterConfig())
        begin_s = time.process_time()
        for chunk in chunks:
            segmenter.feed(chunk)
        means.append((time.process_time() - begin_s) / len(chunks))
    return min(means) * 1e6


def main() -> None:
    """Measure and print."""
    live_us, file_us = microseconds_per_feed(100), microseconds_per_feed(1000)
    print(
        json.dumps(
            {
                "benchmark": "segmenter",
                "us_per_100_ms_chunk": round(live_us, 1),
                "us_per_second_of_file": round(file_us, 1),
                "times_real_time_live": round(100_000 / live_us),
            }
        )
    )


if __name__ == "__main__":
    main()
