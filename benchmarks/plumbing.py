"""The worker between Kafka and Kafka, without a model; prints one JSON line.

    python benchmarks/plumbing.py --calls 32 --mode at-least-once

A worker process whose engine decodes at once (`support/deaf_worker.py`) reads
stereo µ-law calls in chunks of 100 ms from Apache Kafka, which is started for it.

- `chunks_per_s`, `cpu_us_per_chunk`: a backlog of chunks, read as fast as it goes, from the first
  message to the commit of the last; CPU time of the whole process, librdkafka's threads included;
- `latency_ms`: p50 and p99 from the time at which the message was due that let a final be decided
  to the final's arrival, at shares of that capacity (`--shares`); open loop: a producer that is
  late counts against the worker;
- `takeover_s`: from kill -9 of one of two workers to the first final of a partition that it had.

Broker, producer and worker share this machine: wants one that is not busy.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import numpy as np
import orjson
from support.kafka_bench import (
    CHUNK_MS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_S,
    Bench,
    Worker,
    calls,
    in_turn,
)

from worker.devkafka import BrokerKind, BrokerOptions, local_broker
from worker.messages import RawMessage

KILLED_AFTER_S = 8.0


def backlog(bench: Bench, number: int, messages: int) -> dict[str, float]:
    """Reads what is there as fast as it goes."""
    seconds = messages / number * CHUNK_MS / 1000
    for planned in in_turn(calls(number, seconds, "deep")):
        bench.send(planned, 0.0)
    bench.producer.flush(TIMEOUT_S)
    total = len(bench.due_ms)
    watcher = bench.watcher()
    worker = bench.worker()
    try:
        while (first := bench.committed(watcher)) == 0:
            time.sleep(0.02)
        began, cpu = time.monotonic(), worker.cpu_s()
        while (last := bench.committed(watcher)) < total:
            time.sleep(0.02)
        took, used = time.monotonic() - began, worker.cpu_s() - cpu
    finally:
        worker.end()
        watcher.close()
    return {
        "chunks": last - first,
        "chunks_per_s": round((last - first) / took),
        "cpu_us_per_chunk": round(used / (last - first) * 1e6, 1),
    }


def paced(bench: Bench, number: int, chunks_per_s: float, seconds: float) -> list[float]:
    """Milliseconds from due to there of each final, calls playing at a rate of chunks."""
    speed = chunks_per_s / number * CHUNK_MS / 1000  # times real time
    plans = calls(number, seconds * speed, f"paced-{round(chunks_per_s)}")
    latencies: list[float] = []
    with bench.finals() as finals:
        start = time.time()
        for planned in in_turn(plans):
            due = start + planned.due_s / speed
            while (wait_s := due - time.time()) > 0:
                latencies += arrived(finals.poll(min(wait_s, 0.005)), bench)
            bench.send(planned, due * 1000)
        end = time.time() + 3.0
        while time.time() < end:
            latencies += arrived(finals.poll(0.005), bench)
            bench.producer.poll(0)
    return latencies


def arrived(records: list[RawMessage], bench: Bench) -> list[float]:
    """Of finals that have just come: how long after their last message was due."""
    now_ms = time.time() * 1000
    found = []
    for record in records:
        source = orjson.loads(record.value or b"{}")["source"]
        due_ms = bench.due_ms.get((source["partition"], source["last_offset"]))
        if due_ms is not None:
            found.append(now_ms - due_ms)
    return found


def takeover(bench: Bench, number: int) -> float:
    """Seconds from the death of one of two workers to a final of a partition that it had."""
    workers = [bench.worker(), bench.worker()]
    orphaned: set[int] = set()
    killed_at = settled = 0.0
    try:
        with bench.finals() as finals:
            await_shares(workers)
            start = time.time()
            for planned in in_turn(calls(number, 60.0, "orphan")):
                due = start + planned.due_s
                while (wait_s := due - time.time()) > 0:
                    partitions = {partition_of(r) for r in finals.poll(min(wait_s, 0.01))}
                    if killed_at and time.time() > settled and partitions & orphaned:
                        return time.time() - killed_at
                bench.send(planned, due * 1000)
                if not killed_at and planned.due_s > KILLED_AFTER_S:
                    orphaned = workers[0].partitions()
                    workers[0].process.kill()
                    killed_at = time.time()
                    settled = killed_at + 1.0  # until then, what it published before may come
    finally:
        for worker in workers:
            worker.end()
    raise SystemExit("no final came after the kill")


def await_shares(workers: Sequence[Worker]) -> None:
    """Returns when every worker has partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while not all(worker.partitions() for worker in workers):
        if time.monotonic() > deadline:
            raise SystemExit("the workers do not share the partitions")
        time.sleep(0.2)


def partition_of(record: RawMessage) -> int:
    """The partition of the chunks of a final."""
    return int(orjson.loads(record.value or b"{}")["source"]["partition"])


def measure(options: argparse.Namespace, servers: str) -> dict[str, object]:
    """All of it, one after the other."""
    deep = backlog(Bench(servers, options.mode), options.calls, options.messages)
    latency: dict[str, dict[str, float]] = {}
    bench = Bench(servers, options.mode)
    worker = bench.worker()
    try:
        warm_up = paced(bench, options.calls, 200, 5.0)
        while not warm_up:
            warm_up = paced(bench, options.calls, 200, 5.0)
        for share in options.shares:
            found = paced(bench, options.calls, share * deep["chunks_per_s"], options.seconds)
            latency[str(share)] = {
                "finals": len(found),
                "p50": round(float(np.percentile(found, 50)), 1),
                "p99": round(float(np.percentile(found, 99)), 1),
            }
    finally:
        worker.end()
    return {
        "benchmark": "plumbing",
        "mode": options.mode,
        "calls": options.calls,
        **deep,
        "latency_ms": latency,
        "takeover_s": round(takeover(Bench(servers, options.mode), 8), 2),
        "session_timeout_s": SESSION_TIMEOUT_MS / 1000,
    }


def note(line: str) -> None:
    """A word on the progress, apart from the result."""
    sys.stderr.write(f"{line}\n")


def main(arguments: list[str]) -> None:
    """Start a broker, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mode", default="at-least-once")
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--messages", type=int, default=40_000, help="of the backlog")
    parser.add_argument("--seconds", type=float, default=8.0, help="at each share")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.1, 0.5, 0.9])
    options = parser.parse_args(arguments)
    broker_options = BrokerOptions(kinds=(BrokerKind.KAFKA,))
    with local_broker(broker_options, say=note) as broker:
        print(json.dumps(measure(options, broker.bootstrap_servers)))


if __name__ == "__main__":
    main(sys.argv[1:])
