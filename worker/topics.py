"""The topics of the worker: which there are, and how they are created."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from worker.settings import Settings

_TIMEOUT_S = 30.0
# a chunk may hold 1 MiB of audio besides its headers, which is more than a topic takes by default
_CHUNK_BYTES = 2 << 20
_FILE_BYTES = 12 << 20
# A commit may name a state record for as long as its partition stands still, so its age alone
# decides: at least the input's retention, which is a week by default.
_STATE_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(14 * 24 * 3600 * 1000)}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be; `replication` −1 leaves it to the broker."""

    name: str
    partitions: int
    replication: int = -1
    config: dict[str, str] = field(default_factory=dict)


class TopicError(RuntimeError):
    """A topic is missing and could not be created; the message names it."""


def topic_specs(settings: Settings) -> list[TopicSpec]:
    """Every topic of the worker with its partitions and size limits, input first."""
    topics = settings.topics

    def spec(name: str, max_bytes: int | None = None) -> TopicSpec:
        config = {} if max_bytes is None else {"max.message.bytes": str(max_bytes)}
        return TopicSpec(name, topics.partitions, topics.replication, config)

    return [
        spec(topics.chunks, _CHUNK_BYTES),
        spec(topics.files, _FILE_BYTES),
        spec(topics.transcripts),
        spec(topics.partials),
        spec(topics.events),
        spec(topics.dead_letters, _FILE_BYTES),
        TopicSpec(topics.state, topics.partitions, topics.replication, dict(_STATE_CONFIG)),
    ]


def existing_partitions(admin: AdminClient) -> dict[str, int]:
    """Number of partitions of every topic there is."""
    known = admin.list_topics(timeout=_TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in known.items()}


def ensure_topics(admin: AdminClient, specs: list[TopicSpec]) -> list[str]:
    """Creates the topics that are missing and returns their names; raises `TopicError`.

    A topic that is there is left as it is: its owner may have reasons for other settings.
    """
    there = existing_partitions(admin)
    missing = [spec for spec in specs if spec.name not in there]
    if not missing:
        return []
    wanted = [
        NewTopic(spec.name, spec.partitions, spec.replication, config=spec.config)
        for spec in missing
    ]
    created = []
    for name, outcome in admin.create_topics(wanted, operation_timeout=_TIMEOUT_S).items():
        try:
            outcome.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"topic {name} cannot be created: {error.args[0].str()}") from None
            continue
        created.append(name)
    return created


def touch_topics(admin: AdminClient, specs: list[TopicSpec]) -> None:
    """Makes topics appear on the mock cluster, which creates what it is asked about."""
    for spec in specs:
        admin.list_topics(spec.name, timeout=_TIMEOUT_S)
