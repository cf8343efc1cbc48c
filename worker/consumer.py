"""One topic's consumer: batches of messages in, assignments and commit answers as calls.

Everything here runs in the loop's thread: librdkafka calls back inside `poll` alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from worker.assignment import Cluster, Start, resolve_starts
from worker.client_headers import readable_headers
from worker.commits import CommitResult
from worker.messages import Batch, RawMessage
from worker.producer import FatalClientError
from worker.watchdog import Watchdog

logger = logging.getLogger(__name__)

MAX_BATCH = 500

# What the broker says when somebody else may own the partition by now. An illegal generation is
# not among it: every commit that meets a rebalance gets that, also for partitions that stay ours,
# which are not assigned again. A member that is out hears so from its next heartbeat.
_LOST = frozenset((KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH))


class Assignee(Protocol):
    """Who works on the partitions of a source."""

    def assigned(self, starts: Sequence[Start]) -> None:
        """Partitions are ours from these offsets on."""

    def revoked(self, partitions: Sequence[int]) -> None:
        """Hand over: commit what is done, leave the rest."""

    def lost(self, partitions: Sequence[int]) -> None:
        """Somebody else may own them already: publish and commit nothing."""

    def commit_answered(self, partition: int, result: CommitResult) -> None:
        """The broker answered a commit."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a source joins and where it begins."""

    properties: dict[str, Any]
    topic: str
    auto_offset_reset: str
    on_client_error: Callable[[KafkaError], None]
    cluster: Cluster
    watchdog: Watchdog | None = None


class Source:
    """Reads one topic as a member of its group."""

    def __init__(self, options: SourceOptions, assignee: Assignee) -> None:
        self.topic = options.topic
        self.joined = False
        self._options = options
        self._assignee = assignee
        self._paused: set[int] = set()
        self._positions: dict[int, int] = {}  # next offset to come, by partition
        self._fatal: str | None = None
        self._consumer = Consumer(
            {
                **options.properties,
                "enable.partition.eof": True,
                "on_commit": self._on_commit,
                "error_cb": options.on_client_error,
            }
        )
        self._consumer.subscribe(
            [options.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    @property
    def paused(self) -> frozenset[int]:
        """Partitions that are assigned and not read now."""
        return frozenset(self._paused)

    def poll(self, timeout_s: float) -> Batch:
        """What is there, waiting at most `timeout_s` for the first message."""
        batch = self._fetched(timeout_s)
        watchdog = self._options.watchdog
        if watchdog is not None and watchdog.is_due:
            read = {n: at for n, at in self._positions.items() if n not in self._paused}
            watchdog.check(read, self._seek)
        return batch

    def _fetched(self, timeout_s: float) -> Batch:
        first = self._consumer.poll(timeout_s)
        self._check()
        if first is None:
            return Batch([])
        fetched = [first, *self._consumer.consume(MAX_BATCH - 1, 0)]
        self._check()
        messages: list[RawMessage] = []
        ended: set[int] = set()
        highest: dict[int, int] = {}
        for message in fetched:
            raw = self._taken(message, ended)
            if raw is not None:
                messages.append(raw)
                highest[raw.partition] = raw.offset
                self._reached(raw.partition, raw.offset + 1)
                ended.discard(raw.partition)
        # Where messages keep coming, the client hardly ever tells of the end by itself.
        ended.update(n for n, offset in highest.items() if self.lag(n, offset + 1) == 0)
        return Batch(messages, frozenset(ended))

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        """Send a commit; the answer comes to the assignee."""
        place = TopicPartition(self.topic, partition, offset, metadata)
        try:
            self._consumer.commit(offsets=[place], asynchronous=True)
        except KafkaException as error:
            self._assignee.commit_answered(partition, self._meaning(error.args[0]))

    def member(self) -> object | None:
        """The client's proof that it is in the group now, for a transaction; None: it is not."""
        try:
            proof: object = self._consumer.consumer_group_metadata()
        except RuntimeError:  # it is closing and has left, before it told what is revoked
            return None
        return proof

    def pause(self, partitions: Sequence[int]) -> None:
        """Stop reading partitions; throws away what the client fetched ahead of them."""
        fresh = [p for p in partitions if p not in self._paused]
        if fresh:
            self._consumer.pause([TopicPartition(self.topic, p) for p in fresh])
            self._paused.update(fresh)

    def resume(self, partitions: Sequence[int]) -> None:
        """Read partitions again."""
        halted = [p for p in partitions if p in self._paused]
        if halted:
            self._consumer.resume([TopicPartition(self.topic, p) for p in halted])
            self._paused.difference_update(halted)

    def lag(self, partition: int, position: int) -> int | None:
        """Messages between `position` and the end of the log, as last fetched."""
        try:
            _, high = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), cached=True
            )
        except KafkaException:  # the client does not know the partition any more
            return None
        return None if high < 0 else max(0, high - position)

    def close(self) -> None:
        """Hand everything over and leave the group; FatalClientError if that went wrong."""
        self._consumer.close()
        self._check()

    def _reached(self, partition: int, position: int | None) -> None:
        if partition in self._positions and position is not None:
            self._positions[partition] = position

    def _seek(self, partition: int, offset: int) -> None:
        try:
            self._consumer.seek(TopicPartition(self.topic, partition, offset))
        except KafkaException as error:  # it leaves just now
            logger.warning("%s/%d: seek: %s", self.topic, partition, error.args[0].str())

    def _check(self) -> None:
        if self._fatal is not None:
            raise FatalClientError(self._fatal)

    def _taken(self, message: Message, ended: set[int]) -> RawMessage | None:
        error = message.error()
        if error is None:
            return _raw(message)
        code = error.code()
        partition = message.partition()
        if code == KafkaError._PARTITION_EOF and partition is not None:
            ended.add(partition)
            self._reached(partition, message.offset())
        elif error.fatal() or code == KafkaError._FATAL:  # the client's own event is not marked
            raise FatalClientError(f"consumer of {self.topic}: {error.str()}")
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise FatalClientError(
                f"{self.topic}: the offset to read is not in the log any more: {error.str()}"
            )
        else:
            logger.warning("consumer of %s: %s", self.topic, error.str())
        return None

    # An exception must not leave a callback: librdkafka's thread state would not survive it.

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = True
        numbers = [place.partition for place in partitions]
        try:
            options = self._options
            starts = resolve_starts(
                consumer, options.cluster, self.topic, numbers, options.auto_offset_reset
            )
            consumer.incremental_assign(
                [TopicPartition(self.topic, s.partition, s.offset) for s in starts]
            )
            self._paused.difference_update(numbers)
            self._positions.update((s.partition, s.offset) for s in starts)
            self._assignee.assigned(starts)
        except (KafkaException, FatalClientError) as error:
            self._fatal = f"{self.topic}: the assignment failed: {error}"

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [place.partition for place in partitions]
        try:
            self._assignee.revoked(numbers)
        except FatalClientError as error:
            self._fatal = str(error)
        self._leave(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [place.partition for place in partitions]
        self._assignee.lost(numbers)
        self._leave(consumer, partitions)

    def _leave(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            self._paused.discard(place.partition)
            self._positions.pop(place.partition, None)
        try:
            consumer.incremental_unassign(partitions)
        except KafkaException as error:
            logger.warning("%s: unassign: %s", self.topic, error)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            problem = place.error or error
            result = self._meaning(problem)
            if problem is not None and result is CommitResult.FATAL:
                self._fatal = f"{self.topic}: {problem.str()}"
            self._assignee.commit_answered(place.partition, result)

    def _meaning(self, error: KafkaError | None) -> CommitResult:
        if error is None:
            return CommitResult.DONE
        code = error.code()
        logger.warning("commit on %s: %s", self.topic, error.str())
        if code == KafkaError.OFFSET_METADATA_TOO_LARGE:
            return CommitResult.TOO_LARGE
        if code == KafkaError.FENCED_INSTANCE_ID or error.fatal():
            return CommitResult.FATAL
        return CommitResult.LOST if code in _LOST else CommitResult.RETRY


def _raw(message: Message) -> RawMessage:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise FatalClientError("the client delivered a message without a place")
    _, timestamp_ms = message.timestamp()
    headers = readable_headers(message)
    return RawMessage(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=max(0, timestamp_ms),
        key=message.key(),
        value=message.value(),
        headers=headers or (),
        headers_readable=headers is not None,
    )
