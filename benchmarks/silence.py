"""Compute that the gate saves on a channel half of which is silence; prints one JSON line.

    python benchmarks/silence.py --minutes 4

The same audio is decoded twice in turn by the streaming engine, cut by the gate and cut by length
alone: CPU seconds of segmenter and engine together, medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from support.joined_speech import Int16Array, decoded, joined, pieces

from oasr.audio.gates import Vad
from oasr.audio.segmenter import SegmenterConfig
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine


def cpu_s(engine: ASREngine, samples: Int16Array, config: SegmenterConfig) -> float:
    """CPU seconds to cut and decode a channel."""
    started_s = time.process_time()
    decoded(engine, ((piece.samples, piece.keep_samples) for piece in pieces(samples, config)))
    return time.process_time() - started_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vad", choices=list(Vad), type=Vad, default=Vad.ENERGY)
    options = parser.parse_args()
    engine = ASREngine(EngineConfig(max_batch_size=32))
    samples, placed = joined(options.minutes * 60, (1.3, 3.2), -60)
    silent = 1 - sum(place.end - place.start for place in placed) / len(samples)
    gated, ungated = SegmenterConfig(vad=options.vad), SegmenterConfig(gate=False)
    cpu_s(engine, samples[: len(samples) // 4], ungated)
    rounds = [
        (cpu_s(engine, samples, gated), cpu_s(engine, samples, ungated))
        for _ in range(options.rounds)
    ]
    with_gate_s, without_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    heard = sum(piece.cut - piece.start for piece in pieces(samples, gated))
    print(
        json.dumps(
            {
                "benchmark": "silence",
                **vars(options),
                "silent_share": round(silent, 3),
                "decoded_share": round(heard / len(samples), 3),
                "cpu_s_with_gate": round(with_gate_s, 2),
                "cpu_s_without": round(without_s, 2),
                "saved_share": round(1 - with_gate_s / without_s, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
