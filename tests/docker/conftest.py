"""A Kafka image built from the jars that also run without a container, and a broker from it.

`OASR_TEST_DOCKER_BASE` names the base image. Without an engine the tests are skipped; with
`OASR_REQUIRE_DOCKER=1` they fail. Whatever else goes wrong is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.kafka import Topics, create_topics
from worker.devkafka import (
    DEFAULT_CACHE_DIR,
    Broker,
    BrokerKind,
    BrokerOptions,
    local_broker,
)
from worker.devkafka_jars import kafka_jars

IMAGE = "oasr-test-kafka"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.docker)


def _engine_answers() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def engine() -> None:
    """A container engine that answers."""
    if not _engine_answers():
        refuse = pytest.fail if os.environ.get("OASR_REQUIRE_DOCKER") == "1" else pytest.skip
        refuse("no container engine answers")
    # its image lies in a registry, and the fixture removes its container itself
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


@pytest.fixture(scope="session")
def kafka_image(engine: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an image with the same jars as the broker that runs as a process."""
    assert engine is None
    context = tmp_path_factory.mktemp("kafka-image")
    cache = Path(os.environ.get("OASR_TEST_KAFKA_CACHE", DEFAULT_CACHE_DIR))
    jars = kafka_jars(cache, lambda line: _say(line))
    shutil.copytree(jars, context / "libs")
    for script in ("start-kafka", "kafka-broker-api-versions.sh"):
        shutil.copy(HERE / script, context)
    base = os.environ.get("OASR_TEST_DOCKER_BASE", "debian:bookworm-slim")
    command = ["docker", "build", "-q", "-t", IMAGE, "--build-arg", f"BASE={base}"]
    built = subprocess.run(
        [*command, "-f", str(HERE / "kafka.Dockerfile"), str(context)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return IMAGE


@pytest.fixture(scope="session")
def any_broker(kafka_image: str) -> Iterator[Broker]:
    """The broker of the contract tests, in a container."""
    options = BrokerOptions(kinds=(BrokerKind.CONTAINER,), container_image=kafka_image)
    with local_broker(options, say=_say) as broker:
        yield broker


@pytest.fixture
def unique_topics(any_broker: Broker) -> Callable[..., Topics]:
    """`unique_topics(partitions=3)` creates seven topics that no other test knows."""
    return partial(create_topics, any_broker)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
