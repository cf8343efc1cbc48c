"""One broker for all tests of this folder, the best that the machine can give.

`OASR_TEST_BOOTSTRAP` names one that is there, `OASR_TEST_BROKER` the kind to start. With
`OASR_REQUIRE_BROKER=1` a test that would do without a real broker fails instead of being skipped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.kafka import Topics, WorkerProcess, create_topics
from worker.devkafka import (
    DEFAULT_CACHE_DIR,
    REAL_BROKERS,
    Broker,
    BrokerKind,
    BrokerOptions,
    BrokerUnavailable,
    local_broker,
)
from worker.devkafka_node import kafka_program


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def any_broker() -> Iterator[Broker]:
    """Whichever rung of the ladder holds; the mock cluster only where none is required."""
    options = BrokerOptions(
        bootstrap_servers=os.environ.get("OASR_TEST_BOOTSTRAP"),
        kinds=_allowed_kinds(),
        cache_dir=Path(os.environ.get("OASR_TEST_KAFKA_CACHE", DEFAULT_CACHE_DIR)),
    )
    with local_broker(options, say=say) as found:
        yield found


def _allowed_kinds() -> tuple[BrokerKind, ...]:
    if chosen := os.environ.get("OASR_TEST_BROKER"):
        return (BrokerKind(chosen),)
    return REAL_BROKERS if os.environ.get("OASR_REQUIRE_BROKER") == "1" else tuple(BrokerKind)


@pytest.fixture(scope="session")
def real_broker(any_broker: Broker) -> Broker:
    """A real broker; where only the mock cluster is there, skips, or fails if one is required."""
    if any_broker.kind is BrokerKind.MOCK:
        refuse = pytest.fail if os.environ.get("OASR_REQUIRE_BROKER") == "1" else pytest.skip
        refuse("needs a real broker; only the mock cluster is here")
    return any_broker


@pytest.fixture(scope="session")
def own_kafka() -> Path:
    """The cache for brokers that a test may break; skips without Java, or fails if required."""
    cache_dir = Path(os.environ.get("OASR_TEST_KAFKA_CACHE", DEFAULT_CACHE_DIR))
    try:
        kafka_program(cache_dir, say, heap_mib=256)
    except BrokerUnavailable as error:
        refuse = pytest.fail if os.environ.get("OASR_REQUIRE_BROKER") == "1" else pytest.skip
        refuse(f"needs a broker of its own: {error}")
    return cache_dir


def say(line: str) -> None:
    """Shown for a test that fails."""
    sys.stderr.write(f"{line}\n")


@pytest.fixture(scope="session")
def broker(real_broker: Broker) -> str:
    """Bootstrap servers of a real broker."""
    return real_broker.bootstrap_servers


@pytest.fixture
def unique_topics(any_broker: Broker) -> Callable[..., Topics]:
    """`unique_topics(partitions=3)` creates seven topics that no other test knows."""
    return partial(create_topics, any_broker)


@pytest.fixture
def worker_process(broker: str, tmp_path: Path) -> Callable[..., WorkerProcess]:
    """`worker_process(topics, group, settings={})` prepares a worker on the broker."""

    def prepare(
        topics: Topics, group: str, settings: dict[str, str] | None = None, name: str = "worker"
    ) -> WorkerProcess:
        return WorkerProcess(broker, topics, group, tmp_path / f"{name}.log", settings)

    return prepare
