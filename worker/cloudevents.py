"""Headers of an output record: CloudEvents in Kafka's binary mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from worker.messages import Headers

JSON_TYPE: Final = "application/json"


@dataclass(frozen=True, slots=True)
class ModelName:
    """The model that made a record."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who publishes: the consumer group, and the models it serves, the usual one first."""

    group: str
    model: ModelName
    models: Mapping[str, ModelName] = field(default_factory=dict)  # where there are several

    def model_of(self, name: str | None) -> ModelName:
        """The model that the settings call `name`."""
        return self.models.get(name or "", self.model)

    @property
    def source(self) -> str:
        """The `ce_source` of all records."""
        return f"/oasr-worker/{self.group}"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What tells one record from another; `now_ms` is wall-clock time since the epoch."""

    id: str
    type: str
    subject: str
    now_ms: int
    traceparent: str | None = None


def headers(identity: Identity, attributes: Attributes) -> Headers:
    """The headers of a record with a JSON value."""
    pairs = [
        ("ce_specversion", "1.0"),
        ("ce_id", attributes.id),
        ("ce_type", attributes.type),
        ("ce_source", identity.source),
        ("ce_time", timestamp(attributes.now_ms)),
        ("ce_subject", attributes.subject),
        ("content-type", JSON_TYPE),
    ]
    if attributes.traceparent is not None:
        pairs.append(("traceparent", attributes.traceparent))
    return tuple((name, value.encode()) for name, value in pairs)


def timestamp(epoch_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(epoch_ms // 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{epoch_ms % 1000:03d}Z"
