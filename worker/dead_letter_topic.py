"""Reads a dead-letter topic to its present end as an onlooker, and originals from their topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from worker.feed import TopicMissing, end_offset, raw_message
from worker.messages import RawMessage
from worker.one_message import message_at

_TIMEOUT_S: Final = 15.0
_SILENCE_S: Final = 60.0
_POLL_S: Final = 0.2
_BATCH: Final = 500
_LARGEST_BYTES: Final = 12 << 20


class LogSilent(OSError):
    """The brokers stopped giving what they have."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"{topic}: the brokers have given nothing for {_SILENCE_S:.0f} s")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of each partition: the offsets from `starts` up to before `ends`."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]


class LetterTopic:
    """A topic of dead letters; use as a context."""

    def __init__(self, connection: Mapping[str, object], topic: str) -> None:
        """Raises TopicMissing, KafkaException when the brokers do not answer."""
        self.topic = topic
        client = {
            **connection,
            "group.id": f"oasr-onlooker-{uuid.uuid4().hex[:12]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": _LARGEST_BYTES,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 20,
        }
        self._consumer = Consumer(client)
        self._originals = Consumer(client)
        known = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics
        if topic not in known or known[topic].error is not None:
            self.close()
            raise TopicMissing(topic)
        self._numbers = sorted(known[topic].partitions)

    def __enter__(self) -> LetterTopic:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()
        self._originals.close()

    def span(self, since_ms: int | None, after: Mapping[int, int]) -> Span:
        """From a time on, and behind the given offsets, to what is the end now."""
        starts, ends = {}, {}
        for number in self._numbers:
            place = TopicPartition(self.topic, number)
            low, _ = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S)
            ends[number] = end_offset(self._consumer, place, _TIMEOUT_S)
            starts[number] = max(low, after.get(number, -1) + 1)
        if since_ms is not None:
            asked = [TopicPartition(self.topic, number, since_ms) for number in self._numbers]
            for found in self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_S):
                if found.error is not None:
                    raise KafkaException(found.error)
                # a negative one: nothing is as young as that
                first = found.offset if found.offset >= 0 else ends[found.partition]
                starts[found.partition] = max(starts[found.partition], first)
        return Span(starts, ends)

    def records(self, span: Span) -> Iterator[RawMessage]:
        """The records of a span, in order within a partition."""
        left = {n: end for n, end in span.ends.items() if span.starts[n] < end}
        self._consumer.assign([TopicPartition(self.topic, n, span.starts[n]) for n in sorted(left)])
        heard = time.monotonic()
        while left:
            messages = self._consumer.consume(_BATCH, _POLL_S)
            for message in messages:
                number, offset = message.partition() or 0, message.offset() or 0
                if _is_end(message):
                    left.pop(number, None)
                elif message.error() is None and number in left:
                    if offset < span.ends[number]:
                        yield raw_message(message)
                    if offset >= span.ends[number] - 1:
                        del left[number]
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _SILENCE_S:
                raise LogSilent(self.topic)

    def original(self, topic: str, partition: int, offset: int) -> RawMessage | None:
        """A message of another topic by its place; None if its log does not give it."""
        message = message_at(self._originals, topic, partition, offset)
        return None if message is None else raw_message(message)


def _is_end(message: Message) -> bool:
    """Whether it tells of a log's end; raises KafkaException for what the client cannot mend."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN:
        return False
    raise KafkaException(error)
