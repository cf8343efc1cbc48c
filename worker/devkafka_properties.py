"""How the Kafka nodes of demo and tests are configured, as processes or in a container."""

from __future__ import annotations

from collections.abc import Mapping

MAX_MESSAGE_BYTES = 12 << 20

# one node: internal topics are not replicated; no waiting and few internal partitions make groups
# form at once; short session time-outs are for tests that kill their workers, and so is the soon
# abort of transactions whose time is over; the message size
# lets the largest documented message through where a topic allows it
_COMMON = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "message.max.bytes": str(MAX_MESSAGE_BYTES),
    "replica.fetch.max.bytes": str(MAX_MESSAGE_BYTES),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
}

# several nodes: what one has acknowledged is on two; a dead one is noticed in three seconds
_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}


def node_properties(
    listen: str, advertised: str, controller: str, number: int = 1, voters: str | None = None
) -> dict[str, str]:
    """Properties of a node that listens on `listen` and is known to clients as `advertised`.

    All three are `host:port`; an empty host in `listen` means every interface. `voters` names the
    controllers of a cluster of three or more; without it the node is alone.
    """
    return (
        _COMMON
        | ({} if voters is None else _REPLICATED)
        | {
            "node.id": str(number),
            "listeners": f"PLAINTEXT://{listen},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{advertised}",
            # a fixed quorum needs no flag where the storage is formatted
            "controller.quorum.voters": voters or f"{number}@{controller}",
        }
    )


def quorum(controllers: Mapping[int, str]) -> str:
    """The controllers by node number as `controller.quorum.voters` names them."""
    return ",".join(f"{number}@{address}" for number, address in controllers.items())


def as_file(properties: dict[str, str]) -> str:
    """The text of a `server.properties`."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def as_environment(properties: dict[str, str]) -> dict[str, str]:
    """The same as the environment of Kafka's container image: `node.id` becomes `KAFKA_NODE_ID`."""
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in properties.items()}
