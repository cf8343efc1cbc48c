"""Memory and refetching of a worker that is far behind; prints one JSON line.

    python benchmarks/overload.py --backlogs 10 100

The engine takes `--speed` seconds of audio a second (`support/deaf_worker.py`); the log holds 10
and 100 times as much as it can take in `--seconds`. For each backlog:

- `rss_mib`: memory of the process at the end and the most that was seen, and before any message;
- `fetched_per_consumed`: messages that the client fetched over those that the worker got: what a
  pause throws away is fetched again;
- `paused_share`: of the looks at the worker, those at which a partition was paused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from support.kafka_bench import CHUNK_MS, TIMEOUT_S, Bench, calls, in_turn

from worker.devkafka import BrokerKind, BrokerOptions, local_broker

MIB = 1 << 20


def behind(bench: Bench, options: argparse.Namespace, times: float) -> dict[str, object]:
    """A worker at a log that holds so many times what it can take."""
    seconds = times * options.speed * options.seconds / options.calls / 2  # two channels
    for planned in in_turn(calls(options.calls, seconds, "deep")):
        bench.send(planned, 0.0)
    bench.producer.flush(TIMEOUT_S)
    worker = bench.worker(DEAF_AUDIO_S_PER_S=str(options.speed), **dict(options.setting))
    try:
        while not worker.partitions():
            time.sleep(0.05)
        before = worker.rss_bytes()
        most, paused = before, []
        begun = None
        end = time.monotonic() + options.seconds
        while (now := time.monotonic()) < end:
            time.sleep(0.2)
            if begun is None and now > end - options.seconds * 0.7:
                begun = worker.counted()  # from here on, what lies in the client stays the same
            most = max(most, worker.rss_bytes())
            paused.append(sum(worker.metric("paused_partitions").values()) > 0)
        fetched, consumed = worker.counted()
        since = begun or (0.0, 0.0)
        after = worker.rss_bytes()
    finally:
        worker.process.kill()
        worker.process.wait(TIMEOUT_S)
    return {
        "backlog_chunks": len(bench.due_ms),
        "consumed_chunks": round(consumed),
        "rss_mib": {
            "before": round(before / MIB),
            "most": round(most / MIB),
            "after": round(after / MIB),
        },
        "fetched_per_consumed": round((fetched - since[0]) / (consumed - since[1]), 2),
        "paused_share": round(sum(paused) / len(paused), 2),
    }


def main(arguments: list[str]) -> None:
    """Start a broker, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backlogs", type=float, nargs="*", default=[10.0, 100.0])
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--speed", type=float, default=30.0, help="audio seconds a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--setting",
        type=lambda text: tuple(text.split("=", 1)),
        nargs="*",
        default=[],
        help="OASR_NAME=value of the worker",
    )
    options = parser.parse_args(arguments)
    result: dict[str, object] = {
        "benchmark": "overload",
        "chunk_ms": CHUNK_MS,
        "speed": options.speed,
        "settings": dict(options.setting),
    }
    broker_options = BrokerOptions(kinds=(BrokerKind.KAFKA,))
    with local_broker(broker_options, say=lambda line: print(line, file=sys.stderr)) as broker:
        for times in options.backlogs:
            bench = Bench(broker.bootstrap_servers, "at-least-once")
            result[f"{times:g} times"] = behind(bench, options, times)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
