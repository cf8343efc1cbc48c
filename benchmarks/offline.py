"""Whole utterances in batches: how many times faster than they play; prints one JSON line."""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from load import SAMPLE_RATE, rotations

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=8, help="length of each utterance")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    engine = ASREngine(
        EngineConfig(
            device=options.device, dtype=options.dtype, max_batch_size=max(options.batches)
        )
    )
    audio = rotations(options.seconds * SAMPLE_RATE, max(options.batches))
    engine.transcribe(audio[:1])
    spent_s: dict[int, list[float]] = {batch: [] for batch in options.batches}
    for _ in range(options.rounds):
        for batch, spent in spent_s.items():
            started_s = time.process_time()
            engine.transcribe(audio[:batch])
            spent.append(time.process_time() - started_s)
    rates = {
        f"batch_{batch}_per_cpu_second": round(
            batch * options.seconds / statistics.median(spent), 1
        )
        for batch, spent in spent_s.items()
    }
    chosen = {name: value for name, value in vars(options).items() if name != "batches"}
    print(json.dumps({"benchmark": "offline", **chosen, **rates}))


if __name__ == "__main__":
    main()
