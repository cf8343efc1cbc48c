"""Where to begin on a partition: the group's commit, or the policy where there is none.

The client never decides this itself: with its own reset a broken connection or a recreated topic
could skip messages silently.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from worker.producer import FatalClientError

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0  # of one question
PATIENCE_S = 20.0  # of one assignment: below what a turn of the loop may take at most
RETRY_AFTER_S = 0.2

T = TypeVar("T")

# What a broker says while a leader or coordinator is on its way, and what a lost connection gives.
_TRANSIENT = frozenset(
    (
        *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE),
        *(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE),
        *(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.REQUEST_TIMED_OUT),
        *(KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.STALE_MEMBER_EPOCH),
        *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
        *(KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD),
        *(KafkaError._ALL_BROKERS_DOWN, KafkaError._DESTROY_BROKER),  # the latter left the cluster
        # brokers that have just come back do not know of every topic yet
        *(KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC),
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    )
)


def is_transient(error: KafkaException) -> bool:
    """Whether the same question may be answered a little later."""
    return error.args[0].code() in _TRANSIENT


@dataclass(frozen=True, slots=True)
class Patience:
    """How long questions that meet a moving leader are asked again; seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    limit_s: float = PATIENCE_S

    def ask(self, question: Callable[[], T], until_s: float) -> T:
        """The answer; raises the KafkaException that does not pass, or that outlives `until_s`."""
        while True:
            try:
                return question()
            except KafkaException as error:
                if not is_transient(error) or self.now() >= until_s:
                    raise
                logger.warning("asked again where to begin: %s", error.args[0].str())
            self.sleep(RETRY_AFTER_S)


class Cluster(Protocol):
    """Who tells the partitions of a topic, and is not the consumer itself.

    A consumer that asks for metadata inside its own callback forgets that it is being polled: the
    next callback of the same poll ends the process.
    """

    def list_topics(self, topic: str, *, timeout: float) -> Any: ...


@dataclass(frozen=True, slots=True)
class Start:
    """The first offset to read on a partition, and what the last owner left with it."""

    partition: int
    offset: int
    metadata: str | None  # None: nobody's commit holds for this offset
    lost_messages: int = 0  # committed above, but no longer in the log


def resolve_starts(
    consumer: Consumer,
    cluster: Cluster,
    topic: str,
    partitions: Sequence[int],
    policy: str,
    patience: Patience | None = None,
) -> list[Start]:
    """Where to begin on each partition; FatalClientError where `policy` says so.

    `policy` (earliest, latest, error) counts only while the group has no commit on the topic at
    all: a partition that was added later is read from its start. Raises KafkaException for an
    error that does not pass within `patience`.
    """
    if not partitions:
        return []
    patience = patience or Patience()
    until_s = patience.now() + patience.limit_s
    committed = patience.ask(lambda: _committed(consumer, topic, partitions), until_s)
    fresh = [p for p in partitions if committed[p].offset < 0]
    known = bool(fresh) and patience.ask(
        lambda: _group_knows(consumer, cluster, topic, committed), until_s
    )
    if known and policy == "latest":
        policy = "earliest"
    starts = []
    for number in partitions:
        low, high = patience.ask(partial(_log_of, consumer, topic, number), until_s)
        place = committed[number]
        if place.offset < 0:
            starts.append(_without_commit(topic, number, (low, high), policy, known))
        else:
            starts.append(_from_commit(topic, place, (low, high), policy))
    return starts


def _log_of(consumer: Consumer, topic: str, number: int) -> tuple[int, int]:
    """The partition's first offset and the one behind its last."""
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
    return low, high


def _committed(
    consumer: Consumer, topic: str, partitions: Sequence[int]
) -> dict[int, TopicPartition]:
    places = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=TIMEOUT_S)
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return {place.partition: place for place in places}


def _group_knows(
    consumer: Consumer,
    cluster: Cluster,
    topic: str,
    committed: dict[int, TopicPartition],
) -> bool:
    """Whether the group has committed on any partition of the topic."""
    if any(place.offset >= 0 for place in committed.values()):
        return True
    metadata = cluster.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    others = [p for p in metadata.partitions if p not in committed]
    if not others:
        return False
    return any(place.offset >= 0 for place in _committed(consumer, topic, others).values())


def _without_commit(
    topic: str, number: int, log: tuple[int, int], policy: str, known: bool
) -> Start:
    low, high = log
    if policy == "error" and not known:
        raise FatalClientError(
            f"{topic}/{number}: the group has no commit and kafka.auto_offset_reset is `error`"
        )
    return Start(number, high if policy == "latest" else low, None)


def _from_commit(topic: str, place: TopicPartition, log: tuple[int, int], policy: str) -> Start:
    low, high = log
    if low <= place.offset <= high:
        return Start(place.partition, place.offset, place.metadata or "")
    if policy == "error":
        raise FatalClientError(
            f"{topic}/{place.partition}: the commit {place.offset} is outside the log "
            f"{low}..{high} and kafka.auto_offset_reset is `error`"
        )
    lost = max(0, low - place.offset)
    logger.error(
        "%s/%d: the commit %d is outside the log %d..%d; reading from its start",
        topic,
        place.partition,
        place.offset,
        low,
        high,
    )
    return Start(place.partition, low, None, lost)
