"""What scheduling costs, and what the window saves: one JSON line.

Bars: a window selection < 100 µs at 10 000 waiting and < 1 ms at 50 000 with its arrivals, an
abort < 10 µs, padding ≤ 1.12 × the useful frames, nobody delayed by more than 9 batches.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from oasr.engine.config import EngineConfig
from oasr.engine.request import Request
from oasr.engine.scheduler import Scheduler

BATCH = 32
QUEUED = 2048
SHORTEST_S, LONGEST_S, MEAN_S, DEVIATION_S = 1.1, 10.1, 6.6, 2.2  # LJSpeech
SILENCE = np.zeros(int(LONGEST_S * 16000) + 1, dtype=np.float32)


def lengths_s(rng: random.Random, count: int) -> list[float]:
    """Utterance lengths from a beta distribution of LJSpeech's range, mean and deviation."""
    span = LONGEST_S - SHORTEST_S
    mean, variance = (MEAN_S - SHORTEST_S) / span, (DEVIATION_S / span) ** 2
    weight = mean * (1 - mean) / variance - 1
    return [
        SHORTEST_S + span * rng.betavariate(mean * weight, (1 - mean) * weight)
        for _ in range(count)
    ]


def files(lengths: Sequence[float]) -> list[Request]:
    return [Request(SILENCE[: int(seconds * 16000)], f"f{i}") for i, seconds in enumerate(lengths)]


def streams(count: int) -> list[Request]:
    return [Request(request_id=f"s{i}", streaming=True) for i in range(count)]


def filled(requests: Sequence[Request], max_wait_time: float) -> Scheduler:
    scheduler = Scheduler(EngineConfig(max_batch_size=BATCH, max_wait_time=max_wait_time))
    for request in requests:
        scheduler.add_request(request)
    return scheduler


def timed_us(call: Callable[[], object]) -> float:
    """CPU time of a call: it computes and nothing else, and other processes do not count."""
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / 1000


def selection_us(requests: Sequence[Request], max_wait_time: float) -> tuple[float, float]:
    """(median, least) time of a selection with no arrivals between the calls."""
    scheduler = filled(requests, max_wait_time)
    spent = [timed_us(scheduler.schedule) for _ in range(100)]
    return statistics.median(spent), min(spent)


def amortised_us(requests: Sequence[Request], waiting: int, max_wait_time: float) -> float:
    """Mean time of a selection and a batch of arrivals, with `waiting` requests in the queue."""
    scheduler = filled(requests[:waiting], max_wait_time)
    arrivals = requests[waiting:]

    def steps() -> None:
        for start in range(0, len(arrivals), BATCH):
            for request in arrivals[start : start + BATCH]:
                scheduler.add_request(request)
            scheduler.schedule()

    return timed_us(steps) / (len(arrivals) / BATCH)


def one_slot_us(requests: Sequence[Request], max_wait_time: float) -> float:
    """Median time of a step that fills one freed slot of the running pool."""
    scheduler = filled(requests, max_wait_time)
    running = scheduler.schedule().running_streams
    spent = []
    for _ in range(50):
        scheduler.finish_request(running[0].request_id)
        spent.append(timed_us(scheduler.schedule))
        running = running[1:]
        running += [next(r for r in scheduler.schedule().running_streams if r not in running)]
    return statistics.median(spent)


def abort_us(requests: Sequence[Request], rng: random.Random) -> float:
    scheduler = filled(requests, max_wait_time=0.2)
    ids = [request.request_id for request in rng.sample(requests, 2000)]

    def aborts() -> None:
        for request_id in ids:
            scheduler.abort_request(request_id)

    return timed_us(aborts) / len(ids)


def padding(lengths: Sequence[float], policy: str) -> tuple[float, int]:
    """(padded / useful frames, most batches anybody is served later than first come first)."""
    config = EngineConfig(max_batch_size=BATCH, schedule_policy=policy)  # type: ignore[arg-type]
    scheduler = Scheduler(config, clock=lambda: 0.0)
    place: dict[str, int] = {}
    for request in files(lengths):
        request.arrival_time = 0.0
        place[request.request_id] = len(place)
        scheduler.add_request(request)
    padded = useful = step = delay = 0
    while batch := scheduler.schedule().offline_batch:
        costs = [request.num_frames for request in batch]
        padded += max(costs) * len(costs)
        useful += sum(costs)
        delay = max(delay, *(step - place[r.request_id] // BATCH for r in batch))
        step += 1
    return padded / useful, delay


def main() -> None:
    rng = random.Random(0)
    lengths = lengths_s(rng, 50_000 + 100 * BATCH)
    never = 1e9
    fifo, _ = padding(lengths[:QUEUED], "fcfs")
    runs = [padding(lengths[start : start + QUEUED], "window") for start in range(0, 40960, QUEUED)]
    in_time_us, in_time_least_us = selection_us(files(lengths[:10_000]), never)
    overdue_us, overdue_least_us = selection_us(files(lengths[:10_000]), 0.0)
    report = {
        "benchmark": "scheduler",
        "window_10k_us": in_time_us,
        "window_10k_least_us": in_time_least_us,
        "window_10k_overdue_us": overdue_us,
        "window_10k_overdue_least_us": overdue_least_us,
        "window_50k_with_arrivals_us": amortised_us(files(lengths), 50_000, never),
        "window_50k_overdue_with_arrivals_us": amortised_us(files(lengths), 50_000, 0.0),
        "one_slot_50k_streams_us": one_slot_us(streams(50_000), never),
        "one_slot_50k_overdue_streams_us": one_slot_us(streams(50_000), 0.0),
        "abort_50k_us": abort_us(files(lengths[:50_000]), rng),
        "fifo_padding": fifo,
        "window_padding_mean": statistics.mean(ratio for ratio, _ in runs),
        "window_padding_worst": max(ratio for ratio, _ in runs),
        "window_delay_batches": max(delay for _, delay in runs),
    }
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in report.items()}
    sys.stdout.write(json.dumps(rounded) + "\n")


if __name__ == "__main__":
    main()
