"""One message by its place, read by a consumer that has nothing else to do meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

READ_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.2


def message_at(
    consumer: Consumer, topic: str, partition: int, offset: int, timeout_s: float = READ_TIMEOUT_S
) -> Message | None:
    """The message at an offset; None if the log has it no more, or does not give it in time.

    The consumer needs `enable.partition.eof` and `auto.offset.reset` `error`.
    """
    consumer.assign([TopicPartition(topic, partition, offset)])
    try:
        return _first(consumer.poll, topic, partition, offset, timeout_s)
    finally:
        consumer.unassign()


def _first(
    poll: Callable[[float], Message | None],
    topic: str,
    partition: int,
    offset: int,
    timeout_s: float,
) -> Message | None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        message = poll(_POLL_S)
        if message is None or (message.topic(), message.partition()) != (topic, partition):
            continue
        error = message.error()
        if error is None:
            return message if message.offset() == offset else None
        if error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            return None
    return None
