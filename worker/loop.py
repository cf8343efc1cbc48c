"""The loop: Kafka in, one model step, Kafka out, commit. One thread owns it all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from worker.chunk_lane import ChunkLane
from worker.delivery import Outputs
from worker.file_lane import FileLane
from worker.gauges import Gauges
from worker.health import Health
from worker.models import Models

IDLE_POLL_S = 0.02  # how long an idle loop waits for the next message
FINAL_FLUSH_S = 10.0


@dataclass(frozen=True, slots=True)
class Machinery:
    """Everything that a turn moves."""

    chunks: ChunkLane
    files: FileLane
    recognizer: Models
    sink: Outputs
    health: Health
    gauges: Gauges
    joined: Callable[[], bool]
    now: Callable[[], float]
    show: Callable[[], None] = lambda: None  # to whoever looks at the live page


class Loop:
    """Turns until it is told to stop, then hands over live calls and finishes files."""

    def __init__(self, machinery: Machinery, drain_timeout_s: float) -> None:
        self._parts = machinery
        self._drain_timeout_s = drain_timeout_s
        self._stop_requested = False

    def stop(self) -> None:
        """End after the present turn; safe to call from a signal handler."""
        self._stop_requested = True

    def run(self) -> None:
        """Turn until `stop`, then leave in order."""
        while not self._stop_requested:
            self.turn()
        self._leave()

    def turn(self) -> None:
        """Kafka in, one model step, Kafka out, commit."""
        parts = self._parts
        wait_s = 0.0 if parts.recognizer.has_work else IDLE_POLL_S
        if parts.chunks.is_read:
            parts.chunks.poll(wait_s)
            wait_s = 0.0
        self._work(wait_s)
        parts.chunks.tick(parts.recognizer.held_s, parts.recognizer.has_work)
        parts.health.joined = parts.joined()
        parts.gauges.update()
        parts.show()

    def _work(self, wait_s: float = 0.0) -> None:
        """Everything but the live lane's own reading and committing."""
        parts = self._parts
        parts.files.poll(wait_s)
        if parts.recognizer.has_work:
            for step in parts.recognizer.step():
                parts.gauges.stepped(step)
        parts.sink.poll()
        parts.files.tick()
        parts.health.turned()

    def _leave(self) -> None:
        """Live calls go to their heirs at once; file jobs in progress may finish."""
        parts = self._parts
        parts.health.draining = True
        parts.chunks.close()
        parts.files.drain()
        deadline = parts.now() + self._drain_timeout_s
        while parts.files.running_jobs and parts.now() < deadline:
            self._work(0.0 if parts.recognizer.has_work else IDLE_POLL_S)
        parts.sink.flush(FINAL_FLUSH_S)
        parts.files.close()
        parts.sink.close()
        parts.recognizer.close()
