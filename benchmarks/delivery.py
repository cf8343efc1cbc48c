"""What exactly-once delivery costs beside at-least-once; prints one JSON line.

    python benchmarks/delivery.py --rounds 3 --calls 16

The worker between Kafka and Kafka, without a model (see `plumbing.py`), in both modes in turn,
`--rounds` times; all figures are medians over the rounds:

- `cpu_us_per_chunk`, `chunks_per_s`: a backlog, read as fast as it goes;
- `latency_ms`: p50 and p99 of finals from the time at which their last message was due, at
  `--rate` chunks a second, the same in both modes.

Broker, producer and worker share this machine: wants one that is not busy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

import numpy as np
from plumbing import backlog, note, paced
from support.kafka_bench import Bench

from worker.devkafka import BrokerKind, BrokerOptions, local_broker

MODES = ("at-least-once", "exactly-once")
WARM_UP_S = 3.0

Figures = dict[str, float]


def measure(servers: str, mode: str, options: argparse.Namespace) -> Figures:
    """One round of one mode."""
    deep = backlog(Bench(servers, mode), options.calls, options.messages)
    bench = Bench(servers, mode)
    worker = bench.worker()
    try:
        while not paced(bench, options.calls, options.rate, WARM_UP_S):
            note("the worker has not joined yet")
        found = paced(bench, options.calls, options.rate, options.seconds)
    finally:
        worker.end()
    return {
        "cpu_us_per_chunk": deep["cpu_us_per_chunk"],
        "chunks_per_s": deep["chunks_per_s"],
        "latency_p50_ms": float(np.percentile(found, 50)),
        "latency_p99_ms": float(np.percentile(found, 99)),
    }


def medians(rounds: list[Figures]) -> Figures:
    """The median of each figure."""
    return {name: round(statistics.median(r[name] for r in rounds), 1) for name in rounds[0]}


def main(arguments: list[str]) -> None:
    """Start a broker, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=16)
    parser.add_argument("--messages", type=int, default=16_000, help="of the backlog")
    parser.add_argument("--rate", type=float, default=400.0, help="chunks a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="at that rate")
    options = parser.parse_args(arguments)
    found: dict[str, list[Figures]] = {mode: [] for mode in MODES}
    with local_broker(BrokerOptions(kinds=(BrokerKind.KAFKA,)), say=note) as broker:
        for number in range(options.rounds):
            for mode in MODES:
                found[mode].append(measure(broker.bootstrap_servers, mode, options))
                note(f"round {number + 1}, {mode}: {found[mode][-1]}")
    result = {mode: medians(rounds) for mode, rounds in found.items()}
    print(json.dumps({"benchmark": "delivery", "rounds": options.rounds, **result}))


if __name__ == "__main__":
    main(sys.argv[1:])
