"""How much memory do very many sessions of one chunk each take, behind the limit of sessions?

    python -m benchmarks.many_keys

A partition gets one 100 ms chunk of each key, commits every 500 messages, and ends the longest idle
sessions above the limit. Resident memory is read at a tenth of the keys and at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from tests.support.calls import chunk, spoken
from tests.support.partitions import Desk
from worker.ports import Limits

COMMIT_EVERY = 500
PAGE_KB = 4


def resident_mb() -> float:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_KB / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--max-open", type=int, default=1_000)
    options = parser.parse_args()
    desk = Desk([], Limits(max_sessions=options.max_open))
    audio = spoken(0.1)
    most, early_mb, began = 0, 0.0, time.process_time()
    for number in range(options.keys):
        desk.partition.receive(replace(chunk(f"key-{number}", audio), offset=number))
        if number % COMMIT_EVERY == COMMIT_EVERY - 1:
            most = max(most, len(desk.partition.sessions.all()))
            desk.clock_s += 0.1
            desk.partition.tick()
            desk.speech.step()
            desk.outbox.acknowledge()
            desk.commit()
            desk.outbox.sent.clear()
            desk.outbox.on_topic.clear()
        if number == options.keys // 10:
            early_mb = resident_mb()
    result = {
        "benchmark": "many_keys",
        "keys": options.keys,
        "max_open": options.max_open,
        "most_open": most,
        "refused": len(desk.counts.codes),
        "ended": desk.counts.outcomes.get("ok", 0),
        "cpu_ms_a_key": round((time.process_time() - began) / options.keys * 1000, 3),
        "resident_mb_at_a_tenth": round(early_mb, 1),
        "resident_mb_at_the_end": round(resident_mb(), 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
