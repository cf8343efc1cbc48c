"""Apache Kafka (KRaft) as child processes on free ports, with temporary logs: one node or several.

Java's ports are chosen before it binds them, so a node may find its port taken: it then ends, and
the start fails with its last words.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.devkafka_node import Node, cluster_id, free_ports, kafka_program

_HEAP_MIB = 512
_HEAP_OF_SEVERAL_MIB = 256


@contextmanager
def kafka_server(cache_dir: Path, say: Callable[[str], object]) -> Iterator[str]:
    """Bootstrap servers of a fresh, empty Kafka that ends with the block or with this process.

    Raises `BrokerUnavailable` when Java or the jars are missing, or with the end of the broker's
    log when it does not start.
    """
    with kafka_nodes(cache_dir, say, count=1) as nodes:
        yield nodes[0].address


@contextmanager
def kafka_nodes(cache_dir: Path, say: Callable[[str], object], count: int) -> Iterator[list[Node]]:
    """A fresh, empty Kafka of one node, or of three or more with three replicas of everything.

    Every record that is acknowledged is on two of several nodes (`min.insync.replicas` 2), so one
    may die. Raises `BrokerUnavailable` like `kafka_server`.
    """
    program = kafka_program(cache_dir, say, _HEAP_MIB if count == 1 else _HEAP_OF_SEVERAL_MIB)
    folder = Path(tempfile.mkdtemp(prefix="oasr-kafka-"))
    controllers = None
    if count > 1:
        ports = free_ports(count)
        controllers = {n: f"127.0.0.1:{port}" for n, port in enumerate(ports, start=1)}
    cluster = cluster_id()
    nodes = [
        Node(program, folder / f"node-{number}", cluster, number, controllers)
        for number in range(1, count + 1)
    ]
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.await_ready()
        yield nodes
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)
