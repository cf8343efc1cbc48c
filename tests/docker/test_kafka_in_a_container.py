"""The broker contract once more, on Kafka in a container."""

from __future__ import annotations

import subprocess

from tests.kafka.test_broker_contract import *  # noqa: F403
from worker.devkafka import Broker, BrokerKind


def test_the_broker_is_the_one_in_the_container(any_broker: Broker, kafka_image: str) -> None:
    running = subprocess.run(
        ["docker", "ps", "--filter", f"ancestor={kafka_image}", "--format", "{{.Ports}}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    port = any_broker.bootstrap_servers.rpartition(":")[2]

    assert any_broker.kind is BrokerKind.CONTAINER
    assert f":{port}->9092/tcp" in running
