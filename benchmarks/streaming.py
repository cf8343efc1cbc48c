"""Real-time factor of the streaming engine, features included; prints one JSON line.

    python benchmarks/streaming.py --streams 32 --threads 2

Every stream plays the same minutes of wandering noise, each from another place, in pieces of
`--piece-ms`; with 0 all audio is given at once. What noise costs is what speech costs: the
windows, the caches and the search do the same work, but for the few tokens.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
import torch
from numpy.typing import NDArray

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

SAMPLE_RATE = 16_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=20, help="audio of each stream")
    parser.add_argument("--piece-ms", type=int, default=0)
    parser.add_argument("--chunk-size", type=int, default=16)
    parser.add_argument("--left-chunks", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    engine = ASREngine(
        EngineConfig(
            ckpt_dir=options.model,
            device=options.device,
            dtype=options.dtype,
            chunk_size=options.chunk_size,
            num_left_chunks=options.left_chunks,
            max_batch_size=options.streams,
        )
    )
    audio = wandering_noise(options.seconds * SAMPLE_RATE)
    run(engine, audio[: 3 * SAMPLE_RATE], options.streams, options.piece_ms)
    report = run(engine, audio, options.streams, options.piece_ms)
    chosen = {name: value for name, value in vars(options).items() if name != "model"}
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"benchmark": "streaming", **chosen, **report, "peak_rss_mib": peak_mib}))


def wandering_noise(samples: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    gains = np.repeat(10 ** rng.uniform(-3, -1, samples // 1600 + 1), 1600)[:samples]
    return (rng.standard_normal(samples) * gains).astype(np.float32)


def run(
    engine: ASREngine, audio: NDArray[np.float32], streams: int, piece_ms: int
) -> dict[str, float]:
    """Decodes `streams` rotations of `audio`; how many times faster than they play."""
    piece = piece_ms * SAMPLE_RATE // 1000 or len(audio)
    feeds = [np.roll(audio, number * 16_001) for number in range(streams)]
    ids = [engine.add_streaming_request() for _ in feeds]
    steps_ms: list[float] = []
    features_s = forward_s = 0.0
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    for begin in range(0, len(audio), piece):
        for request_id, feed in zip(ids, feeds, strict=True):
            is_last = begin + piece >= len(audio)
            engine.feed_chunk(request_id, feed[begin : begin + piece], is_last)
        while engine.has_work:
            engine.step()
            steps_ms.append(engine.stats.step_s * 1000)
            features_s += engine.stats.features_s
            forward_s += engine.stats.forward_s
    elapsed_s = time.perf_counter() - started_s
    cpu_s = time.process_time() - started_cpu_s
    played_s = streams * len(audio) / SAMPLE_RATE
    return {
        "times_real_time": round(played_s / elapsed_s, 1),
        "seconds_per_cpu_second": round(played_s / cpu_s, 1),  # holds on a busy machine, too
        "step_p50_ms": round(float(np.percentile(steps_ms, 50)), 2),
        "step_p99_ms": round(float(np.percentile(steps_ms, 99)), 2),
        "features_share": round(features_s / elapsed_s, 3),
        "forward_share": round(forward_s / elapsed_s, 3),
    }


if __name__ == "__main__":
    main()
