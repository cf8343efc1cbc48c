"""The metrics that say how things stand, brought up to date once a second."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from oasr.engine.stats import StepStats
from worker.chunk_lane import ChunkLane
from worker.consumer import Source
from worker.file_lane import FileLane
from worker.metrics import Metrics
from worker.models import Models, Step
from worker.offsets import OffsetTracker
from worker.ports import Owner
from worker.recognizers import is_isolated

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
PINNED_TOLD_S = 120.0
RECENT_STEPS = 60


class Tracked(Owner, Protocol):
    """A partition, as far as gauges go."""

    tracker: OffsetTracker


@dataclass(slots=True)
class _Pinned:
    """The oldest open message of a partition, and since when it is."""

    offset: int
    since: float
    is_told: bool = False


@dataclass(frozen=True, slots=True)
class Subjects:
    """What the gauges are read from."""

    chunks: ChunkLane
    files: FileLane
    lanes: Sequence[tuple[Source, Mapping[int, Tracked]]]  # that are read, with their partitions
    recognizer: Models


class Gauges:
    """Writes gauges; counters are counted where things happen."""

    def __init__(self, metrics: Metrics, subjects: Subjects, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._subjects = subjects
        self._now = now
        self._next = 0.0
        self.recent_steps: deque[tuple[int, float]] = deque(maxlen=RECENT_STEPS)  # batch, seconds
        self._pinned: dict[tuple[str, int], _Pinned] = {}

    def stepped(self, step: Step) -> None:
        """A model has made a step; those of processes of their own hold nobody up."""
        metrics, stats = self._metrics, step.stats
        metrics.model_busy.labels(step.model).inc(stats.step_s)
        if not step.is_ours:
            return
        metrics.engine_steps.inc()
        metrics.engine_step_duration.observe(stats.step_s)
        metrics.engine_near_ties.inc(stats.near_ties)
        self._caches(step.model, stats)
        served = stats.streams + stats.offline_requests
        if served:
            metrics.engine_batch_size.observe(served)
            self.recent_steps.append((served, stats.step_s))

    def _caches(self, model: str, stats: StepStats) -> None:
        cache = self._metrics.engine_cache
        cache.labels(model, "pool").set(stats.kv_blocks * stats.kv_block_bytes)
        cache.labels(model, "used").set(stats.kv_blocks_used * stats.kv_block_bytes)
        cache.labels(model, "parked").set(stats.parked_bytes)

    def update(self) -> None:
        """Read everything again, if it is time."""
        now = self._now()
        if now < self._next:
            return
        self._next = now + INTERVAL_S
        self._metrics.last_poll.set_to_current_time()
        self._work_at_hand()
        for source, partitions in self._subjects.lanes:
            self._lane(source, partitions, now)

    def _work_at_hand(self) -> None:
        metrics, subjects = self._metrics, self._subjects
        sessions = [s for p in subjects.chunks.partitions.values() for s in p.sessions.all()]
        channels = [c for s in sessions for c in s.channels.values()]
        metrics.open_sessions.set(len(sessions))
        metrics.open_segments.set(sum(c.open_segment is not None for c in channels))
        metrics.open_files.set(subjects.files.open_jobs)
        metrics.runnable_audio.set(sum(subjects.recognizer.held_s().values()))
        for model, count in subjects.recognizer.open_requests().items():
            metrics.model_open_requests.labels(model).set(count)
        metrics.undecoded_audio.labels("live").set(subjects.recognizer.undecoded_age_s())
        metrics.undecoded_audio.labels("files").set(subjects.files.oldest_age_s())

    def _lane(self, source: Source, partitions: Mapping[int, Tracked], now: float) -> None:
        metrics, topic = self._metrics, source.topic
        metrics.assigned_partitions.labels(topic).set(len(partitions))
        metrics.paused_partitions.labels(topic).set(len(source.paused))
        isolated = sum(map(is_isolated, partitions.values()))
        metrics.isolated_partitions.labels(topic).set(isolated)
        pinned: dict[tuple[str, int], _Pinned] = {}
        for number, partition in partitions.items():
            tracker = partition.tracker
            lag = source.lag(number, tracker.watermark)
            if lag is not None:
                metrics.consumer_lag.labels(topic, number).set(lag)
            oldest = tracker.oldest_open()
            pinned_s = 0.0
            if oldest is not None:
                pin = self._pinned.get((topic, number))
                if pin is None or pin.offset != oldest:
                    pin = _Pinned(oldest, now)
                pinned[(topic, number)] = pin
                pinned_s = now - pin.since
                self._tell(topic, number, pin, pinned_s)
            metrics.watermark_pinned.labels(topic, number).set(pinned_s)
        others = {place: seen for place, seen in self._pinned.items() if place[0] != topic}
        self._pinned = {**others, **pinned}

    def _tell(self, topic: str, number: int, pin: _Pinned, pinned_s: float) -> None:
        """Say once of a message that it holds its partition up."""
        if pinned_s >= PINNED_TOLD_S and not pin.is_told:
            pin.is_told = True
            logger.warning(
                "%s/%d: no commit since %.0f s, because the message at %d is not finished"
                " (oasr-worker sessions list tells whose it is)",
                *(topic, number, pinned_s, pin.offset),
            )
