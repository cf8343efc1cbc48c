"""Where to begin on a partition: the group's commit, or the policy where there is none.

The client never decides this itself: with its own reset a broken connection or a recreated topic
could skip messages silently.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from worker.producer import FatalClientError

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """The first offset to read on a partition, and what the last owner left with it."""

    partition: int
    offset: int
    metadata: str | None  # None: nobody's commit holds for this offset
    lost_messages: int = 0  # committed above, but no longer in the log


def resolve_starts(
    consumer: Consumer, topic: str, partitions: Sequence[int], policy: str
) -> list[Start]:
    """Where to begin on each partition; FatalClientError where `policy` says so.

    `policy` (earliest, latest, error) counts only while the group has no commit on the topic at
    all: a partition that was added later is read from its start.
    """
    if not partitions:
        return []
    committed = _committed(consumer, topic, partitions)
    fresh = [p for p in partitions if committed[p].offset < 0]
    if fresh and _group_knows(consumer, topic, partitions, committed):
        policy = "earliest" if policy == "latest" else policy
        known = True
    else:
        known = False
    starts = []
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
        place = committed[number]
        if place.offset < 0:
            starts.append(_without_commit(topic, number, (low, high), policy, known))
        else:
            starts.append(_from_commit(topic, place, (low, high), policy))
    return starts


def _committed(
    consumer: Consumer, topic: str, partitions: Sequence[int]
) -> dict[int, TopicPartition]:
    places = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=TIMEOUT_S)
    for place in places:
        if place.error is not None:
            raise FatalClientError(f"{topic}/{place.partition}: {place.error.str()}")
    return {place.partition: place for place in places}


def _group_knows(
    consumer: Consumer,
    topic: str,
    partitions: Sequence[int],
    committed: dict[int, TopicPartition],
) -> bool:
    """Whether the group has committed on any partition of the topic."""
    if any(place.offset >= 0 for place in committed.values()):
        return True
    metadata = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    others = [p for p in metadata.partitions if p not in partitions]
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
