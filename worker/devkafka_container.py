"""Apache Kafka in a container, started through testcontainers (the `test` extra)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from worker.devkafka import BrokerUnavailable
from worker.devkafka_node import free_ports
from worker.devkafka_properties import as_environment, node_properties
from worker.devkafka_ready import await_broker

START_TIMEOUT_S = 120.0
_TAIL_BYTES = 2000
_CONTROLLER_PORT = 9093
_IN_CONTAINER_PORT = 9092


@contextmanager
def kafka_container(image: str) -> Iterator[str]:
    """Bootstrap servers of a Kafka in a container that is removed after the block.

    The broker has to tell its clients a port before it starts, so a free one of this machine is
    chosen first and bound. Raises `BrokerUnavailable` without an engine or an image.
    """
    container = _container(image)
    (port,) = free_ports(1)
    container.with_bind_ports(_IN_CONTAINER_PORT, port)
    try:
        host = container.get_docker_client().host()
        properties = node_properties(
            listen=f":{_IN_CONTAINER_PORT}",
            advertised=f"{host}:{port}",
            controller=f"localhost:{_CONTROLLER_PORT}",
        )
        for name, value in as_environment(properties).items():
            container.with_env(name, value)
        container.start()
    except Exception as error:  # noqa: BLE001 - the engine's client raises all kinds
        raise BrokerUnavailable(f"cannot start {image}: {error}") from None
    try:
        bootstrap_servers = f"{host}:{port}"
        _await(container, bootstrap_servers)
        yield bootstrap_servers
    finally:
        container.stop()


def _await(container: Any, bootstrap_servers: str) -> None:
    try:
        await_broker(bootstrap_servers, START_TIMEOUT_S)
    except BrokerUnavailable as error:
        log = b"".join(container.get_logs())[-_TAIL_BYTES:].decode(errors="replace")
        raise BrokerUnavailable(f"{error}; its log ends: {log}") from None


def _container(image: str) -> Any:
    try:
        from testcontainers.core.container import DockerContainer
    except ImportError:
        raise BrokerUnavailable(
            "testcontainers is not installed (extra 'test' of oasr-worker)"
        ) from None
    try:
        return DockerContainer(image)
    except Exception as error:  # noqa: BLE001 - the engine's client raises all kinds
        raise BrokerUnavailable(f"no container engine answers: {error}") from None
