"""Who does what in a cluster of several nodes, so that a test can break the right one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

import orjson
from confluent_kafka.admin import AdminClient

from worker.devkafka_node import Node

TIMEOUT_S = 5.0
INTERNAL_PARTITIONS = 4  # of the topics of the coordinators, as the nodes are configured


class Roles:
    """Reads from the cluster who leads what."""

    def __init__(self, nodes: Sequence[Node], servers: str) -> None:
        self._nodes = {node.number: node for node in nodes}
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def controller(self) -> Node:
        """The leader of the controllers' quorum, as the nodes' own files name it."""
        path = "log/__cluster_metadata-0/quorum-state"
        states = [orjson.loads((n.folder / path).read_bytes()) for n in self._nodes.values()]
        return self._nodes[max(states, key=lambda state: state["leaderEpoch"])["leaderId"]]

    def group_coordinator(self, group: str) -> Node:
        """The node that keeps the group's offsets."""
        return self.leader("__consumer_offsets", place_of(group))

    def transaction_coordinator(self, transactional_id: str) -> Node:
        """The node that keeps the producer's transactions."""
        return self.leader("__transaction_state", place_of(transactional_id))

    def leader(self, topic: str, partition: int) -> Node:
        """The node that is written to; KeyError while there is none, KafkaException."""
        found = self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        return self._nodes[found.partitions[partition].leader]

    def all_in_sync(self, topics: Sequence[str]) -> bool:
        """Whether every node has everything of the topics and of the coordinators."""
        known = self._admin.list_topics(timeout=TIMEOUT_S)
        if len(known.brokers) < len(self._nodes):
            return False
        wanted = {*topics, "__consumer_offsets", "__transaction_state"}
        return all(
            len(partition.isrs) == len(self._nodes) and partition.leader >= 0
            for name in wanted & known.topics.keys()
            for partition in known.topics[name].partitions.values()
        )


def place_of(name: str) -> int:
    """The partition of a coordinator's topic: Java's `String.hashCode` of an ASCII name."""
    value = 0
    for letter in name.encode("ascii"):
        value = (31 * value + letter) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % INTERNAL_PARTITIONS


class Forwarder:
    """An address that stays while brokers move behind it, as a load balancer's does."""

    def __init__(self, targets: Callable[[], Sequence[str]]) -> None:
        """`targets` tells where the brokers are now, `host:port` each."""
        self._targets = targets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True, name="forwarder")

    @property
    def address(self) -> str:
        """Where it listens, `host:port`."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Forwarder:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # it was shut
                return
            broker = self._connected()
            if broker is None:
                client.close()
                continue
            for source, sink in ((client, broker), (broker, client)):
                threading.Thread(target=copy, args=(source, sink), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        for target in self._targets():
            host, _, port = target.partition(":")
            try:
                broker = socket.create_connection((host, int(port)), timeout=1.0)
            except OSError:
                continue
            broker.settimeout(None)
            return broker
        return None


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Bytes from one to the other until either ends; then both do."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    # A close alone would not wake the one who waits for the other direction.
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()
