"""Reads topics as an onlooker: every partition, no group, no commits."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage

from worker.client_headers import readable_headers
from worker.messages import RawMessage

_METADATA_TIMEOUT_S = 15.0
_BATCH = 500
_RETRY_S = 0.05
_NO_LEADER_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


class TopicMissing(RuntimeError):
    """A topic is not there; the message names it."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic}, or no right to see it (oasr-worker topics --create)"
        )


class Feed:
    """The records of some topics from now on, or from their beginning; use as a context."""

    def __init__(
        self, connection: Mapping[str, object], topics: Sequence[str], from_beginning: bool = False
    ) -> None:
        """Raises TopicMissing, KafkaException when the brokers do not answer."""
        self._consumer = Consumer(
            {
                **connection,
                "group.id": f"oasr-onlooker-{uuid.uuid4().hex[:12]}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 20,
            }
        )
        self._consumer.assign(self._partitions(topics, from_beginning))

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[RawMessage]:
        """What is there, after waiting for the first of it at most `timeout_s`."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(_BATCH, 0)]
        return [raw_message(m) for m in messages if _is_record(m)]

    def _partitions(self, topics: Sequence[str], from_beginning: bool) -> list[TopicPartition]:
        known = self._consumer.list_topics(timeout=_METADATA_TIMEOUT_S).topics
        places = []
        for topic in topics:
            if topic not in known:
                raise TopicMissing(topic)
            for partition in known[topic].partitions:
                place = TopicPartition(topic, partition, OFFSET_BEGINNING)
                if not from_beginning:
                    # an end that is known now misses nothing that is sent from now on
                    place.offset = end_offset(self._consumer, place, _METADATA_TIMEOUT_S)
                places.append(place)
        return places


def end_offset(consumer: Consumer, place: TopicPartition, timeout_s: float) -> int:
    """The offset that the partition's next record will get; raises KafkaException.

    A topic that was created a moment ago may have no leader yet; it is waited for.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=timeout_s)
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in _NO_LEADER_YET:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return int(end)


def _is_record(message: KafkaMessage) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN:
        return False  # the client goes on by itself
    raise KafkaException(error)


def raw_message(message: KafkaMessage) -> RawMessage:
    """A record of the client as plain data."""
    headers = readable_headers(message)
    return RawMessage(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=max(0, message.timestamp()[1]),
        key=message.key(),
        value=message.value(),
        headers=headers or (),
        headers_readable=headers is not None,
    )
