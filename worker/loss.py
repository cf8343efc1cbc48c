"""Messages that the log lost before anybody read them: an event about a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from worker.cloudevents import Attributes, Identity, headers
from worker.messages import Kind, OutRecord

SCHEMA: Final = "oasr.partition.v1"
_EVENT: Final = "messages_lost"


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets of a partition that were not read and are not in the log any more."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int

    @property
    def name(self) -> str:
        """`<topic>:<partition>`, the key of its event."""
        return f"{self.topic}:{self.partition}"


def event(identity: Identity, loss: Loss, now_ms: int) -> OutRecord:
    """The event of a loss; it may be told again by an owner that meets the same loss."""
    body = {
        "schema": SCHEMA,
        "event": _EVENT,
        "group": identity.group,
        "topic": loss.topic,
        "partition": loss.partition,
        "first_offset": loss.first_offset,
        "last_offset": loss.last_offset,
    }
    attributes = Attributes(
        id=f"{loss.name}:{loss.first_offset}:{loss.last_offset}:{_EVENT}",
        type="oasr.partition.messages_lost.v1",
        subject=loss.name,
        now_ms=now_ms,
    )
    return OutRecord(
        kind=Kind.EVENT,
        key=loss.name.encode(),
        value=orjson.dumps(body),
        headers=headers(identity, attributes),
    )
