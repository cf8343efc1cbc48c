"""`make fuzz`: as many hostile inputs as there is time for, and what became of them.

Inputs follow from numbers, so every line about a failure says how to see it again. Files are read
in a child process, because what a damaged one does to a native decoder would end this one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.fuzz_calls import check_log, hostile_log
from tests.support.fuzz_files import check_file, damaged
from tests.support.fuzz_messages import (
    DEFAULTS,
    check_chunk,
    check_file_message,
    chunk_message,
    file_message,
)
from tests.support.fuzz_uris import one_uri, place

SILENT_S = 60.0
_BATCH = 200
_MOST_SHOWN = 10
_MOST_GROWTH_MIB = 300


def one_chunk(number: int) -> str:
    """What becomes of the chunk message of this number."""
    return check_chunk(chunk_message(random.Random(number)), DEFAULTS[number % len(DEFAULTS)])


def one_job(number: int) -> str:
    """The same for a message of the file topic."""
    return check_file_message(file_message(random.Random(number)))


def one_log(number: int) -> str:
    """Whether the log of this number is read to its end."""
    rng = random.Random(number)
    check_log(hostile_log(rng), rng)
    return "read to its end"


def one_recording(number: int) -> str:
    """What becomes of the damaged recording of this number."""
    return check_file(damaged(random.Random(number)))


def numbers(first: int, count: int, one: Callable[[int], str]) -> tuple[Counter[str], list[str]]:
    """The outcomes of `count` inputs, and a line for each that broke a rule."""
    outcomes: Counter[str] = Counter()
    failures = []
    for number in range(first, first + count):
        try:
            outcomes[one(number)] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            failures.append(f"{number}: {type(error).__name__} in {where.name}:{where.lineno}")
    return outcomes, failures


def uris(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """The same for URIs of claim checks, with a folder and a network around them."""
    with tempfile.TemporaryDirectory() as base, place(Path(base)) as around:
        return numbers(first, count, partial(one_uri, around=around))


def recordings(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """The same for recordings; a child that dies, hangs or grows is a finding too."""
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    at, end = first, first + count
    while at < end:
        at = _in_child(at, end, outcomes, failures)
    return outcomes, failures


def _in_child(at: int, end: int, outcomes: Counter[str], failures: list[str]) -> int:
    """Reads on from a number until a child ends; the number to go on with."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_read_recordings, args=(theirs, at, end), daemon=True)
    child.start()
    theirs.close()
    try:
        while at < end:
            if not ours.poll(SILENT_S):
                failures.append(f"{at}: nothing for {SILENT_S:.0f} s")
                return at + 1
            number, outcome, failure = ours.recv()
            at = number + 1
            if failure is None:
                outcomes[outcome] += 1
            else:
                failures.append(failure)
    except EOFError:
        child.join(10)
        failures.append(f"{at}: the process ended with status {child.exitcode}")
        return at + 1
    finally:
        child.kill()
        child.join()
    return at


def _read_recordings(connection: Connection, first: int, end: int) -> None:
    one_recording(first)
    before = _peak_mib()
    for number in range(first, end):
        outcomes, failures = numbers(number, 1, one_recording)
        failure = failures[0] if failures else None
        if failure is None and _peak_mib() - before > _MOST_GROWTH_MIB:
            failure = f"{number}: {_peak_mib() - before:.0f} MiB more than before"
            before = _peak_mib()
        connection.send((number, next(iter(outcomes), ""), failure))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Status 1 if an input broke a rule."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first number; default 0")
    for name, count, what in (
        ("chunks", 1_000_000, "messages of the chunk topic"),
        ("jobs", 200_000, "messages of the file topic"),
        ("uris", 200_000, "URIs of claim checks"),
        ("logs", 1_000, "logs of hostile calls, read by a partition"),
        ("files", 10_000, "damaged recordings"),
    ):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"{what}; default {count}")
    options = parser.parse_args()
    runs: tuple[tuple[str, int, Callable[[int, int], tuple[Counter[str], list[str]]]], ...] = (
        ("chunks", options.chunks, lambda first, count: numbers(first, count, one_chunk)),
        ("jobs", options.jobs, lambda first, count: numbers(first, count, one_job)),
        ("uris", options.uris, uris),
        ("logs", options.logs, lambda first, count: numbers(first, count, one_log)),
        ("files", options.files, recordings),
    )
    broken = [_run(name, options.seed, count, run) for name, count, run in runs if count]
    return int(any(broken))


def _run(
    name: str,
    seed: int,
    count: int,
    run: Callable[[int, int], tuple[Counter[str], list[str]]],
) -> bool:
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    step = count if name == "files" else max(_BATCH, count // 100)
    for first in range(seed, seed + count, step):
        found, broken = run(first, min(step, seed + count - first))
        outcomes += found
        failures += broken
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{name}: {first - seed} of {count}, {len(failures)} findings ")
    result = {
        "input": name,
        "count": outcomes.total() + len(failures),
        "seconds": round(time.monotonic() - began, 1),
        "findings": len(failures),
        "outcomes": dict(outcomes.most_common()),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    for line in failures[:_MOST_SHOWN]:
        sys.stdout.write(f"  {name} {line}\n")
    sys.stdout.flush()
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
