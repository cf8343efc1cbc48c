"""What goes in and out of the worker, as plain data without a Kafka import."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message as the broker delivered it; `timestamp_ms` is the producer's, or 0.

    The client cannot read the headers of a message if the name of one is not UTF-8: then
    `headers_readable` is False and `headers` are empty.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default=())
    headers_readable: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll found: messages, and the partitions of which nothing else is there."""

    messages: list[RawMessage]
    ended: frozenset[int] = frozenset()


class Kind(Enum):
    """Which output topic a record belongs to."""

    FINAL = "final"
    PARTIAL = "partial"
    EVENT = "event"
    DEAD_LETTER = "dead_letter"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to publish; the topic follows from its kind."""

    kind: Kind
    key: bytes | None
    value: bytes
    headers: Headers
