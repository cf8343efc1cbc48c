"""A local broker for the demo and the tests: the best one this machine can give.

The ladder, best first: a broker somebody named, Apache Kafka itself (Java and Maven), Kafka in a
container (Docker), and librdkafka's in-process mock cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

KAFKA_VERSION = "4.4.0"
DEFAULT_CACHE_DIR = Path("~/.cache/oasr-worker") / f"kafka-{KAFKA_VERSION}"
DEFAULT_CONTAINER_IMAGE = f"apache/kafka:{KAFKA_VERSION}"


class BrokerKind(Enum):
    """A rung of the ladder."""

    GIVEN = "given"
    KAFKA = "kafka"
    CONTAINER = "container"
    MOCK = "mock"


REAL_BROKERS = (BrokerKind.GIVEN, BrokerKind.KAFKA, BrokerKind.CONTAINER)


class BrokerUnavailable(RuntimeError):
    """No broker could be had; the message says why, one line a rung."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that answers at `bootstrap_servers`."""

    bootstrap_servers: str
    kind: BrokerKind

    @property
    def creates_topics(self) -> bool:
        """False for the mock cluster: there a topic appears when its metadata is asked for."""
        return self.kind is not BrokerKind.MOCK


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Where the ladder starts and what it may use."""

    bootstrap_servers: str | None = None
    kinds: tuple[BrokerKind, ...] = tuple(BrokerKind)
    cache_dir: Path = DEFAULT_CACHE_DIR
    container_image: str = DEFAULT_CONTAINER_IMAGE


def _silent(_line: str) -> None:
    return


@contextmanager
def local_broker(
    options: BrokerOptions | None = None, say: Callable[[str], None] = _silent
) -> Iterator[Broker]:
    """A broker for the length of the block, stopped and wiped afterwards unless it was given.

    `say` hears which rung was taken and why a better one was not. Raises `BrokerUnavailable`.
    """
    options = options or BrokerOptions()
    rung, broker = _climb(options, say)
    try:
        yield broker
    finally:
        rung.__exit__(None, None, None)


def _climb(
    options: BrokerOptions, say: Callable[[str], None]
) -> tuple[AbstractContextManager[str], Broker]:
    kinds = (BrokerKind.GIVEN,) if options.bootstrap_servers else options.kinds
    reasons: list[str] = []
    for kind in kinds:
        if kind is BrokerKind.GIVEN and not options.bootstrap_servers:
            continue
        rung = _rung(kind, options, say)
        try:
            bootstrap_servers = rung.__enter__()
        except BrokerUnavailable as error:
            reasons.append(f"{kind.value}: {error}")
            say(f"no broker of kind {kind.value}: {error}")
            continue
        say(f"broker: {kind.value} at {bootstrap_servers}")
        return rung, Broker(bootstrap_servers, kind)
    raise BrokerUnavailable("; ".join(reasons) or "no kind of broker is allowed")


def _rung(
    kind: BrokerKind, options: BrokerOptions, say: Callable[[str], None]
) -> AbstractContextManager[str]:
    # imported here so that no rung's needs are paid for by the others
    if kind is BrokerKind.KAFKA:
        from worker.devkafka_server import kafka_server

        return kafka_server(options.cache_dir, say)
    if kind is BrokerKind.CONTAINER:
        from worker.devkafka_container import kafka_container

        return kafka_container(options.container_image)
    if kind is BrokerKind.MOCK:
        from worker.devkafka_mock import mock_cluster

        return mock_cluster(say)
    from worker.devkafka_ready import given_broker

    return given_broker(options.bootstrap_servers or "")
