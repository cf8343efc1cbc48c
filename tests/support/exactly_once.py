"""What readers of committed records see, and workers that deliver exactly once."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.kafka_clients import as_checked, consumer
from tests.support.worker_calls import record_id
from worker.messages import RawMessage

SETTINGS = {
    "OASR_KAFKA__SESSION_TIMEOUT_MS": "2000",
    "OASR_DELIVERY__MODE": "exactly-once",
    "OASR_DELIVERY__TRANSACTION_TIMEOUT_MS": "2000",
}


def read_committed(bootstrap_servers: str, topic: str, timeout_s: float = 30.0) -> list[RawMessage]:
    """Everything that is committed on the topic now, whatever is still pending behind it."""
    reader = consumer(
        bootstrap_servers, f"reader-{uuid.uuid4().hex}", **{"enable.partition.eof": True}
    )
    try:
        known = reader.list_topics(topic, timeout=timeout_s).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, 0) for number in known])
        found: list[RawMessage] = []
        ended: set[int | None] = set()
        while ended < known.keys():
            message = reader.poll(timeout_s)
            assert message is not None, f"{topic}: no end within {timeout_s} s"
            error = message.error()
            if error is None:
                found.append(as_checked(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
        return found
    finally:
        reader.close()


def repeats(records: Iterable[RawMessage]) -> dict[str, int]:
    """How often each id is there, of those that are there more than once."""
    counted = Counter(record_id(raw) for raw in records)
    return {identity: number for identity, number in counted.items() if number > 1}
