"""The catalogue of metrics; the only module of the worker that knows prometheus.

No session, segment or file id is ever a label. Series with a closed set of labels exist from the
start, so that a rate over them is 0 and not absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from worker.errors import ErrorCode
from worker.messages import Kind

PREFIX: Final = "oasr_worker_"

OUTCOMES: Final = ("ok", "dead_letter", "duplicate", "ignored", "skipped", "tombstone")
AUDIO_OUTCOMES: Final = ("decoded", "silence", "dropped")
LANES: Final = ("live", "files")
COMMIT_RESULTS: Final = ("ok", "retried", "lost", "failed", "held")
CHILDREN: Final = ("engine", "model", "reader")
TRANSACTION_RESULTS: Final = ("committed", "aborted", "refused", "evicted", "fatal")
STATE_READS: Final = ("found", "gone", "retried")
STALL_EVENTS: Final = ("sought", "given_up")
REBALANCE_EVENTS: Final = ("assigned", "revoked", "lost")
END_REASONS: Final = (
    *("silence", "max_length", "flush", "end", "idle"),
    *("ttl", "format_change", "shed", "error", "window"),
)
_KINDS: Final = tuple(kind.value for kind in Kind)
_CODES: Final = tuple(code.value for code in ErrorCode)
_PARTITION: Final = ("topic", "partition")

_STEP_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_TRANSACTION_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
_LATENCY_BUCKETS: Final = (
    *(0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.75),
    *(1, 2, 5, 10, 30, 60, 300, 3600),
)
_BATCH_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


Registry = CollectorRegistry  # of one worker's series


def exposition(registry: Registry, accept: str) -> tuple[str, bytes]:
    """Content type and body of a scrape by a client that takes `accept`."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


class Metrics:
    """All series of one worker, registered in the given registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._by_partition: list[Gauge] = []
        self._owned: set[tuple[str, int]] = set()
        self._add_identity()
        self._add_messages()
        self._add_records()
        self._add_audio()
        self._add_engine()
        self._add_group()
        self._add_commits()

    def watch_health(self, checks: Iterable[str], passes: Callable[[str], bool]) -> None:
        """Ask for each check with every scrape, so that a loop that hangs is seen."""
        for check in checks:
            self.health_check.labels(check).set_function(partial(passes, check))

    def own_partition(self, topic: str, partition: int) -> None:
        """A partition is ours from now on."""
        self._owned.add((topic, partition))

    def committed(self, topic: str, partition: int) -> None:
        """A commit has succeeded. The answer to the last one may come after the hand-over."""
        if (topic, partition) in self._owned:
            self.last_commit.labels(topic, partition).set_to_current_time()

    def forget_partition(self, topic: str, partition: int) -> None:
        """Removes the series of a partition that is no longer ours; unknown ones are ignored."""
        self._owned.discard((topic, partition))
        for gauge in self._by_partition:
            gauge.remove(topic, partition)

    def _add_identity(self) -> None:
        self.build_info = self._gauge("build_info", "Always 1; the version.", "version")
        self.model_info = self._gauge(
            "model_info",
            "Always 1; a model that is served.",
            *("model", "digest", "device", "dtype"),
        )
        self.health_check = self._gauge(
            "health_check_status", "Whether a check of the probes passes: 1, else 0.", "check"
        )

    def _add_messages(self) -> None:
        self.messages_consumed = self._counter(
            "messages_consumed", "Messages read, by topic.", topic=None
        )
        self.messages_fetched = self._counter(
            "messages_fetched",
            "Messages that the client has fetched, also those that a pause made it forget.",
            topic=None,
        )
        self.messages_processed = self._counter(
            "messages_processed",
            "Messages taken in: skipped ones were finished by an earlier owner.",
            topic=None,
            outcome=OUTCOMES,
        )
        self.messages_lost = self._counter(
            "messages_lost",
            "Messages that the log lost before they were read: it starts above the commit.",
            topic=None,
        )
        self.dead_letters = self._counter(
            "dead_letters", "Messages refused, by error code.", code=_CODES
        )

    def _add_records(self) -> None:
        self.records_published = self._counter(
            "records_published", "Records that the broker has acknowledged.", kind=_KINDS
        )
        self.produce_errors = self._counter(
            "produce_errors", "Deliveries that failed.", kind=_KINDS
        )
        self.partials_shed = self._counter(
            "partials_shed", "Partials dropped because the producer's queue was full."
        )
        self.final_latency = self._histogram(
            "final_latency_seconds",
            "From the timestamp of the message that completed a segment to its final's"
            " acknowledgement.",
            _LATENCY_BUCKETS,
        )

    def _add_audio(self) -> None:
        self.audio_seconds = self._counter(
            "audio_seconds",
            "Seconds of audio per channel: decoded in segments, silence outside them, dropped.",
            outcome=AUDIO_OUTCOMES,
        )
        self.open_sessions = self._gauge("open_sessions", "Sessions that have not ended.")
        self.open_segments = self._gauge("open_segments", "Segments without a final.")
        self.open_files = self._gauge("open_files", "File jobs in progress.")
        self.segments = self._counter(
            "segments", "Segments that ended, by reason.", end_reason=END_REASONS
        )
        self.segments_without_text = self._counter(
            "segments_without_text", "Segments in which the model heard no word."
        )
        self.undecoded_audio = self._gauge(
            "undecoded_audio_seconds",
            "Age of the oldest audio that the engine has not decoded: the signal to scale by.",
            "lane",
        )
        self.runnable_audio = self._gauge(
            "runnable_audio_seconds", "Audio that the engine could decode now."
        )
        for lane in LANES:
            self.undecoded_audio.labels(lane)

    def _add_engine(self) -> None:
        self.engine_steps = self._counter("engine_steps", "Steps of the engine that did work.")
        self.engine_step_duration = self._histogram(
            "engine_step_duration_seconds", "Duration of a step of the engine.", _STEP_BUCKETS
        )
        self.engine_batch_size = self._histogram(
            "engine_batch_size", "Streams and file windows that shared a step.", _BATCH_BUCKETS
        )
        self.model_busy = self._counter(
            "model_busy_seconds",
            "Time in steps of a model, by its name in the settings.",
            model=None,
        )
        self.model_open_requests = self._gauge(
            "model_open_requests", "Segments and windows that a model has to decode.", "model"
        )
        self.engine_cache = self._gauge(
            "engine_cache_bytes",
            "Caches of open streams: room in the pool, what of it is used, moved to host memory.",
            *("model", "place"),
        )
        self.engine_near_ties = self._counter(
            "engine_near_ties",
            "Readings whose best two were as good as equal: another batch shape may change them.",
        )

    def _add_group(self) -> None:
        self.assigned_partitions = self._gauge(
            "assigned_partitions", "Partitions that this worker owns.", "topic"
        )
        self.paused_partitions = self._gauge(
            "paused_partitions", "Partitions that backpressure has paused.", "topic"
        )
        self.isolated_partitions = self._gauge(
            "isolated_partitions",
            "Partitions whose requests run in a child process, because their owners kept dying.",
            "topic",
        )
        self.child_deaths = self._counter(
            "child_deaths", "Child processes that died or hung and were replaced.", part=CHILDREN
        )
        self.stalls = self._counter(
            "stalls",
            "Partitions from which nothing came though there was something: sought anew, given up.",
            event=STALL_EVENTS,
        )
        self.rebalances = self._counter(
            "rebalances", "Changes of the assignment.", event=REBALANCE_EVENTS
        )
        self.consumer_lag = self._partition_gauge(
            "consumer_lag_records", "End of the log less the committed offset."
        )
        self.watermark_pinned = self._partition_gauge(
            "watermark_pinned_seconds", "How long the oldest open message has been open."
        )
        self.last_poll = self._gauge(
            "last_poll_timestamp_seconds", "When the loop last polled, since the epoch."
        )
        self.kafka_errors = self._counter(
            "kafka_errors", "Errors that the client library reported.", fatal=("true", "false")
        )

    def _add_commits(self) -> None:
        self.commits = self._counter(
            "commits",
            "Commits, by result; held: the state record that one needs was not written.",
            result=COMMIT_RESULTS,
        )
        self.last_commit = self._partition_gauge(
            "last_commit_timestamp_seconds", "When the partition's last commit succeeded."
        )
        self.map_chars = self._partition_gauge(
            "map_chars", "Characters of the last map; above 4095 it goes to the state topic."
        )
        self.map_too_large = self._counter(
            "map_too_large",
            "Commits left out because their map did not fit, most of them at a hand-over.",
        )
        self.transactions = self._counter(
            "transactions",
            "Transactions of exactly-once delivery, by outcome; all but committed ones leave"
            " nothing behind and are sent again as far as their partitions are still ours.",
            result=TRANSACTION_RESULTS,
        )
        self.transaction_duration = self._histogram(
            "transaction_duration_seconds",
            "From closing a transaction's batch to its outcome.",
            _TRANSACTION_BUCKETS,
        )
        self.state_reads = self._counter(
            "state_reads",
            "Searches for a map on the state topic, by result; retried: without an answer in time.",
            result=STATE_READS,
        )
        self.maps_ignored = self._counter(
            "maps_ignored", "Maps that were undecodable, foreign or impossible on assignment."
        )
        self.partition_starts = self._partition_gauge(
            "partition_starts",
            "Owners, this one included, that began on the partition since one left it in order or"
            " kept it for 5 minutes.",
        )

    def _counter(self, name: str, text: str, **labels: tuple[str, ...] | None) -> Counter:
        """A counter; labels whose values are all known get their series now."""
        counter = Counter(PREFIX + name, text, tuple(labels), registry=self._registry)
        if len(labels) == 1:
            for value in next(iter(labels.values())) or ():
                counter.labels(value)
        return counter

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self._registry)

    def _partition_gauge(self, name: str, text: str) -> Gauge:
        gauge = self._gauge(name, text, *_PARTITION)
        self._by_partition.append(gauge)
        return gauge

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        options: dict[str, Any] = {"buckets": buckets, "registry": self._registry}
        return Histogram(PREFIX + name, text, **options)
