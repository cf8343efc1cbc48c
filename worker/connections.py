"""How the command line's own clients reach the brokers: as the worker does, and no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from worker.clients import PARTITIONER, common_properties
from worker.feed import TopicMissing
from worker.messages import Headers
from worker.settings import Settings

_LARGEST_BYTES = 12 << 20
_METADATA_TIMEOUT_S = 15.0
_BY_KEY = -1  # the partitioner decides
_CRITICAL_ONLY = 2  # what goes wrong is told by the command, in its own words

Report = Callable[[KafkaError | None, Message], None]


def connection(settings: Settings) -> dict[str, Any]:
    """Servers and credentials of the settings as client properties, made quiet."""
    return {**common_properties(settings), "log_level": _CRITICAL_ONLY}


class Sender:
    """An idempotent producer that places keys as every producer of the product does."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self._producer = Producer(
            {
                **properties,
                "partitioner": PARTITIONER,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.max.bytes": _LARGEST_BYTES,
                "queue.buffering.max.kbytes": 64 << 10,
            }
        )
        self.delivered = 0
        self.failures: list[str] = []

    def check(self, topic: str) -> None:
        """Raises TopicMissing, KafkaException when the brokers do not answer."""
        known = self._producer.list_topics(topic, timeout=_METADATA_TIMEOUT_S).topics
        if topic not in known or known[topic].error is not None:
            raise TopicMissing(topic)

    def send(
        self,
        topic: str,
        key: str | bytes | None,
        value: bytes | None,
        headers: Headers,
        report: Report | None = None,
        partition: int | None = None,
    ) -> None:
        """Queues a message, by default on the partition of its key; on any one without a key.

        Waits only while the client's queue is full.
        """

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.delivered += 1
            else:
                self.failures.append(error.str())
            if report is not None:
                report(error, message)

        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    headers=list(headers),
                    on_delivery=on_delivery,
                    partition=_BY_KEY if partition is None else partition,
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            return

    def poll(self, timeout_s: float) -> None:
        """Serves delivery reports for at most `timeout_s`."""
        self._producer.poll(timeout_s)

    def finish(self, timeout_s: float) -> int:
        """Waits for everything to be delivered; the number of messages that were not."""
        return self._producer.flush(timeout_s)
