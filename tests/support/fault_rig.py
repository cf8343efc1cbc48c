"""The worker's own loop on a mock cluster, turned by the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from oasr.models.registry import LoadedModel
from tests.support.engine import make_engine
from tests.support.kafka_clients import Committed, Message, Topics, committed, consume_all, produce
from tests.support.mock_cluster import MockCluster
from tests.support.worker_calls import call_messages, excerpt, side_by_side
from worker.assembly import assemble
from worker.clients import common_properties
from worker.delivery import make_outputs
from worker.health import Health
from worker.loop import Loop
from worker.messages import RawMessage
from worker.metrics import PREFIX, Metrics
from worker.settings import Settings

GROUP = "faults"
TOPICS = Topics("chunks", "files", "finals", "partials", "events", "letters", "state")
# Reconnecting takes milliseconds here, so that an outage of a test can be short.
FAST = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
    "log_level": 2,
}


class TimedHealth(Health):
    """Remembers the longest time between two turns since it was asked last."""

    def __init__(self) -> None:
        super().__init__()
        self._before: float | None = None
        self._longest_s = 0.0

    def turned(self) -> None:
        super().turned()
        now = time.monotonic()
        if self._before is not None:
            self._longest_s = max(self._longest_s, now - self._before)
        self._before = now

    def longest_gap_s(self) -> float:
        """Longest gap between turns since the last call of this method."""
        longest, self._longest_s, self._before = self._longest_s, 0.0, None
        return longest


@dataclass
class Rig:
    """One worker that turns when the test says so."""

    cluster: MockCluster
    loop: Loop
    health: TimedHealth
    registry: CollectorRegistry
    places: list[tuple[int, int]] = field(default_factory=list)

    def send(self, messages: Iterable[Message]) -> None:
        """Put messages on their topics."""
        self.places += produce(self.cluster.bootstrap_servers, messages)

    def turn_until(self, what: str, true: Callable[[], bool], timeout_s: float = 20.0) -> None:
        """Turn until something holds; fails naming it."""
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
            self.loop.turn()

    def turn_for(self, seconds: float) -> None:
        """Turn for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.loop.turn()

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of a metric that have these labels."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == PREFIX + name and labels.items() <= sample.labels.items()
        )

    def join(self) -> None:
        """Turn until both topics are ours and their first commits are answered."""
        owned = len(PARTITIONS) * 2
        self.turn_until("joined", lambda: self.metric("assigned_partitions") == owned)
        self.turn_until("first commits", lambda: self.metric("commits_total", result="ok") >= owned)

    def committed(self) -> dict[int, Committed]:
        """What the group has committed on the chunk topic."""
        return committed(self.cluster.bootstrap_servers, GROUP, TOPICS.chunks)

    def all_committed(self) -> bool:
        """Whether everything that was sent to the chunk topic is committed."""
        ends: dict[int, int] = {}
        for partition, offset in self.places:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        now = self.committed()
        return all(n in now and now[n].offset == end for n, end in ends.items())

    def finals(self) -> list[RawMessage]:
        """Every final on its topic."""
        return consume_all(self.cluster.bootstrap_servers, TOPICS.transcripts)


PARTITIONS = range(2)


def the_messages(calls: int = 4, seconds: float = 8.0) -> list[Message]:
    """Calls side by side, an end each; always the same."""
    parts = [call_messages(TOPICS, f"call-{n}", excerpt(n, 2.0 * n, seconds)) for n in range(calls)]
    return list(side_by_side(parts))


def make_settings(cluster: MockCluster, protocol: str, **groups: dict[str, Any]) -> Settings:
    """Settings of a worker on the cluster; `groups` add to them."""
    kafka: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group": GROUP,
        "group_protocol": protocol,
        "session_timeout_ms": 1500 if protocol == "classic" else None,
        "client": FAST,
        "consumer": {"fetch.wait.max.ms": 5},
        **groups.pop("kafka", {}),
    }
    names = {name: getattr(TOPICS, name) for name in TOPICS.__dataclass_fields__}
    rest: dict[str, Any] = {"commits": {"interval_ms": 50}, **groups}
    return Settings(kafka=kafka, topics=names, **rest)


@contextmanager
def worker_on(
    cluster: MockCluster, model: LoadedModel, settings: Settings | None = None
) -> Iterator[Rig]:
    """A worker that is subscribed; it leaves when the block ends without an error."""
    settings = settings or make_settings(cluster, "classic")
    registry, health = CollectorRegistry(), TimedHealth()
    metrics = Metrics(registry)
    health.started = True
    loop = assemble(
        settings,
        make_engine(model, max_wait_time=1.0),
        make_outputs(settings, metrics),
        AdminClient(common_properties(settings)),
        metrics,
        health,
    )
    try:
        yield Rig(cluster, loop, health, registry)
    finally:
        # Also after a failure: a consumer that is collected while it is a member ends the process.
        loop.stop()
        loop.run()


def make_topics(cluster: MockCluster) -> None:
    """The seven topics."""
    names: Sequence[str] = [getattr(TOPICS, name) for name in TOPICS.__dataclass_fields__]
    cluster.create_topics(names, len(PARTITIONS))
