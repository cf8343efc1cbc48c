"""The metrics, in the words of those who count."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from worker.commits import CommitResult
from worker.errors import ErrorCode
from worker.messages import Kind
from worker.metrics import Metrics
from worker.tracing import OnWork, Work, as_log

RECENT_FINALS = 500

_COMMIT_RESULTS = {
    CommitResult.DONE.value: "ok",
    CommitResult.RETRY.value: "retried",
    CommitResult.LOST.value: "lost",
    CommitResult.TOO_LARGE.value: "failed",
    CommitResult.FATAL.value: "failed",
}


class MessageCounters:
    """What happens to messages, audio and segments."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.recent_latencies_s: deque[float] = deque(maxlen=RECENT_FINALS)
        self.on_work: list[OnWork] = [as_log]
        # Twice a message: looking the labels up costs more than counting.
        self._consumed = cache(metrics.messages_consumed.labels)
        self._processed = cache(metrics.messages_processed.labels)

    def consumed(self, topic: str) -> None:
        self._consumed(topic).inc()

    def processed(self, topic: str, outcome: str) -> None:
        self._processed(topic, outcome).inc()

    def dead_letter(self, code: ErrorCode) -> None:
        self._metrics.dead_letters.labels(code.value).inc()

    def audio(self, outcome: str, seconds: float) -> None:
        self._metrics.audio_seconds.labels(outcome).inc(seconds)

    def segment(self, reason: str, has_text: bool) -> None:
        self._metrics.segments.labels(reason).inc()
        if not has_text:
            self._metrics.segments_without_text.inc()

    def final_acknowledged(self, latency_s: float) -> None:
        self._metrics.final_latency.observe(latency_s)
        self.recent_latencies_s.append(latency_s)

    def worked(self, work: Work) -> None:
        for take in self.on_work:
            take(work)


class CommittedLatencies(MessageCounters):
    """Message counters whose latencies run on until the transaction of a final is committed."""

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        super().__init__(metrics)
        self._now = now
        self._open: list[tuple[float, float]] = []  # so far, and at what time
        self._open_work: list[tuple[Work, float]] = []  # the same

    def final_acknowledged(self, latency_s: float) -> None:
        self._open.append((latency_s, self._now()))

    def worked(self, work: Work) -> None:
        self._open_work.append((work, self._now()))

    def settled(self) -> None:
        """The finals that were acknowledged so far are visible."""
        for latency_s, since in self._open:
            super().final_acknowledged(latency_s + self._now() - since)
        self._open.clear()
        for work, since in self._open_work:
            more_ms = round((self._now() - since) * 1000)
            super().worked(replace(work, end_ms=work.end_ms + more_ms))
        self._open_work.clear()


class SinkMetrics:
    """What becomes of records."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def produced(self, kind: Kind) -> None:
        self._metrics.records_published.labels(kind.value).inc()

    def produce_error(self, kind: Kind) -> None:
        self._metrics.produce_errors.labels(kind.value).inc()

    def partial_shed(self) -> None:
        self._metrics.partials_shed.inc()


class LaneMetrics:
    """What becomes of the commits and the assignment on one topic."""

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self._metrics = metrics
        self._topic = topic

    def commit(self, partition: int, result: str) -> None:
        self._metrics.commits.labels(_COMMIT_RESULTS[result]).inc()
        if result == CommitResult.DONE.value:
            self._metrics.committed(self._topic, partition)
        elif result == CommitResult.TOO_LARGE.value:
            self._metrics.map_too_large.inc()

    def commit_held(self, partition: int) -> None:
        del partition
        self._metrics.commits.labels("held").inc()

    def map_chars(self, partition: int, chars: int) -> None:
        self._metrics.map_chars.labels(self._topic, partition).set(chars)

    def rebalance(self, event: str, assigned: int) -> None:
        self._metrics.rebalances.labels(event).inc()
        self._metrics.assigned_partitions.labels(self._topic).set(assigned)

    def map_ignored(self) -> None:
        self._metrics.maps_ignored.inc()

    def stalled(self, event: str) -> None:
        self._metrics.stalls.labels(event).inc()

    def lost(self, messages: int) -> None:
        self._metrics.messages_lost.labels(self._topic).inc(messages)

    def starts(self, partition: int, count: int) -> None:
        self._metrics.own_partition(self._topic, partition)
        self._metrics.partition_starts.labels(self._topic, partition).set(count)

    def state_read(self, result: str) -> None:
        self._metrics.state_reads.labels(result).inc()

    def forget(self, partition: int) -> None:
        self._metrics.forget_partition(self._topic, partition)


class TransactionMetrics(LaneMetrics):
    """What becomes of a lane's transactions and of the records in them."""

    def produced(self, kind: Kind) -> None:
        self._metrics.records_published.labels(kind.value).inc()

    def produce_error(self, kind: Kind) -> None:
        self._metrics.produce_errors.labels(kind.value).inc()

    def transaction(self, outcome: str, duration_s: float) -> None:
        self._metrics.transactions.labels(outcome).inc()
        self._metrics.transaction_duration.observe(duration_s)
