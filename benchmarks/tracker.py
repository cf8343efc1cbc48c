"""Cost of the offset tracker per message: received, done and a look at the watermark."""

from __future__ import annotations

import json
import time
from collections import deque

from worker.offsets import OffsetTracker

MESSAGES = 1_000_000
OPEN = 2_000  # about 50 calls with 20 s of 500 ms chunks


def measure() -> float:
    """Microseconds per message with `OPEN` messages open all the time."""
    tracker = OffsetTracker(0)
    waiting: deque[int] = deque()
    started = time.perf_counter()
    for offset in range(MESSAGES):
        tracker.received(offset)
        waiting.append(offset)
        if len(waiting) > OPEN:
            tracker.done(waiting.popleft())
        _ = tracker.watermark
    return (time.perf_counter() - started) / MESSAGES * 1e6


if __name__ == "__main__":
    figure = min(measure() for _ in range(3))
    print(json.dumps({"benchmark": "tracker", "us_per_message": round(figure, 3), "bar_us": 1.0}))
