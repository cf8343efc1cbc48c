"""A Kafka consumer of plain data, for what the worker asks of the client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition


def place(topic: str, partition: int, offset: int = -1001, **more: Any) -> SimpleNamespace:
    """What the client says of a partition."""
    fields = {"metadata": None, "error": None, **more}
    return SimpleNamespace(topic=topic, partition=partition, offset=offset, **fields)


class FakeMessage:
    """A message or an error event of the client."""

    def __init__(
        self, partition: int, offset: int = 0, error: KafkaError | None = None, **more: Any
    ) -> None:
        self._fields = {"topic": "t", "key": b"k", "value": b"v", "headers": None, **more}
        self._partition, self._offset, self._error = partition, offset, error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> Any:
        return self._fields["topic"]

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> Any:
        return self._fields["key"]

    def value(self) -> Any:
        return self._fields["value"]

    def headers(self) -> Any:
        return self._fields["headers"]

    def timestamp(self) -> tuple[int, int]:
        return (1, self._fields.get("timestamp_ms", 5))


class FakeConsumer:
    """Commits, logs and the messages that were fetched."""

    def __init__(self, properties: dict[str, Any] | None = None) -> None:
        self.properties = properties or {}
        self.commits: dict[int, tuple[int, str | None]] = {}  # what the group has committed
        self.commit_errors: dict[int, KafkaError] = {}
        self.logs: dict[int, tuple[int, int]] = {}
        self.fetched: list[FakeMessage] = []
        self.refusal: KafkaError | None = None
        self.topic_error: KafkaError | None = None
        self.calls: list[tuple[str, Any]] = []
        self.callbacks: dict[str, Any] = {}
        self.membership: object | None = "member"  # None: it has left the group

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.calls.append(("subscribe", topics))
        self.callbacks = callbacks

    def committed(self, places: list[TopicPartition], timeout: float) -> list[SimpleNamespace]:
        assert timeout > 0
        found = []
        for asked in places:
            offset, metadata = self.commits.get(asked.partition, (-1001, None))
            error = self.commit_errors.get(asked.partition)
            found.append(
                place(asked.topic, asked.partition, offset, metadata=metadata, error=error)
            )
        return found

    def get_watermark_offsets(
        self, asked: TopicPartition, timeout: float = 0, cached: bool = False
    ) -> tuple[int, int]:
        assert cached or timeout > 0
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        return self.logs.get(asked.partition, (-1001, -1001))

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        if self.topic_error is not None:
            described = SimpleNamespace(partitions={}, error=self.topic_error)
        else:
            described = SimpleNamespace(partitions=dict(self.logs), error=None)
        return SimpleNamespace(topics={topic: described})

    def poll(self, timeout_s: float) -> FakeMessage | None:
        self.calls.append(("poll", timeout_s))
        return self.fetched.pop(0) if self.fetched else None

    def consume(self, number: int, timeout_s: float) -> list[FakeMessage]:
        self.calls.append(("consume", (number, timeout_s)))
        batch, self.fetched = self.fetched[:number], self.fetched[number:]
        return batch

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        (sent,) = offsets
        self.calls.append(("commit", (sent.partition, sent.offset, sent.metadata)))

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._remember("assign", places, with_offset=True)

    def incremental_unassign(self, places: list[Any]) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        self._remember("unassign", places)

    def pause(self, places: list[TopicPartition]) -> None:
        self._remember("pause", places)

    def resume(self, places: list[TopicPartition]) -> None:
        self._remember("resume", places)

    def seek(self, sought: TopicPartition) -> None:
        if self.refusal is not None:
            raise KafkaException(self.refusal)
        self.calls.append(("seek", (sought.partition, sought.offset)))

    def consumer_group_metadata(self) -> object:
        if self.membership is None:
            raise RuntimeError("Consumer group metadata not available")
        return self.membership

    def close(self) -> None:
        self.calls.append(("close", None))

    def _remember(self, name: str, places: list[Any], with_offset: bool = False) -> None:
        told = [(p.partition, p.offset) if with_offset else p.partition for p in places]
        self.calls.append((name, told))
