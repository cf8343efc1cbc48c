"""What a streaming step spends its time on; prints one JSON line.

    python benchmarks/step_profile.py --streams 32

Self times of torch's profiler, on one thread. Model: the kernels of the network and of its
features. Copies: what brings data to them, caches included. The rest is Python, the bookkeeping
of torch, the search, and the profiler itself, so that `shares` are lower bounds of the model.
`model_share` is the time of its kernels over that of the same steps without the profiler, the
median of rounds that take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter

import torch
from load import SAMPLE_RATE, speech
from numpy.typing import NDArray
from torch.profiler import ProfilerActivity, profile

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

PIECE = SAMPLE_RATE * 640 // 1000  # one window
TOP = 5

# Kernels by what they are for; what is not named is none of the model's.
KERNELS = {
    "aten::mkldnn_convolution": "convolutions",
    "aten::_slow_conv2d_forward": "convolutions",
    "aten::addmm": "linear layers",
    "aten::mm": "linear layers",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "attention",
    "aten::bmm": "attention",
    "aten::_softmax": "attention",
    "aten::silu": "activations",
    "aten::glu": "activations",
    "aten::relu_": "activations",
    "aten::clamp_min": "activations",
    "aten::native_layer_norm": "layer norms",
    "aten::_log_softmax": "log posteriors",
    "aten::add": "sums",
    "aten::add_": "sums",
    "aten::sub": "sums",
    "aten::sum": "sums",
    "aten::mul": "products",
    "aten::mul_": "products",
    "aten::_fft_r2c": "features",
    "aten::pow": "features",
    "aten::mean": "features",
    "aten::clamp_min_": "features",
    "aten::log_": "features",
    "aten::cat": "copies",
    "aten::copy_": "copies",
    "aten::index": "copies",
    "aten::index_select": "copies",
    "aten::index_copy_": "copies",
    "aten::index_fill_": "copies",
    "aten::fill_": "copies",
    "aten::masked_fill_": "copies",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunk-size", type=int, default=16)
    parser.add_argument("--left-chunks", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    engine = ASREngine(
        EngineConfig(
            chunk_size=options.chunk_size,
            num_left_chunks=options.left_chunks,
            max_batch_size=options.streams,
        )
    )
    audio = speech(options.seconds * SAMPLE_RATE)
    decode(engine, audio, options.streams)
    spent_us: Counter[str] = Counter()
    ratios: list[float] = []
    for _ in range(options.rounds):
        plain_us = decode(engine, audio, options.streams)
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            decode(engine, audio, options.streams)
        round_us: Counter[str] = Counter()
        for event in recorded.key_averages():
            round_us[KERNELS.get(event.key, "rest")] += event.self_cpu_time_total
        kernels_us = round_us.total() - round_us["copies"] - round_us["rest"]
        ratios.append(kernels_us / plain_us)
        spent_us += round_us
    total_us = spent_us.total()
    shares = {kind: round(us / total_us, 3) for kind, us in spent_us.most_common()}
    report = {
        "model_share": round(statistics.median(ratios), 3),
        "top_costs": dict([*shares.items()][:TOP]),
        "shares": shares,
    }
    print(json.dumps({"benchmark": "step_profile", **vars(options), **report}))


def decode(engine: ASREngine, audio: NDArray, streams: int) -> float:
    """Plays `audio` to every stream, one window a step; the time of the steps in µs."""
    spent_s = 0.0
    ids = [engine.add_streaming_request() for _ in range(streams)]
    for begin in range(0, len(audio), PIECE):
        for request_id in ids:
            engine.feed_chunk(request_id, audio[begin : begin + PIECE], begin + PIECE >= len(audio))
        started_s = time.perf_counter()
        engine.run()
        spent_s += time.perf_counter() - started_s
    return spent_s * 1e6


if __name__ == "__main__":
    main()
