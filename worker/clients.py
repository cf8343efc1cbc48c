"""librdkafka properties of the worker's clients.

The consumers are driven by `poll` and `consume(n, 0)`: `fetch.queue.backoff.ms` is low, because
its default of 1 s stalls a small prefetch queue. `auto.offset.reset` is `error`: the worker
decides itself where to begin, so that no broken connection can skip messages.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from worker.client_log import ClientLog
from worker.settings import Settings
from worker.settings_kafka import ClientValue

Properties = dict[str, ClientValue | ClientLog]

# Everything that feeds the worker uses the hash of the Java clients, and so do its outputs:
# librdkafka's own default would put one key on two partitions.
PARTITIONER: Final = "murmur2_random"


def common_properties(settings: Settings) -> Properties:
    """What every client needs to reach the brokers."""
    kafka = settings.kafka
    properties: Properties = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "socket.keepalive.enable": True,
        # So soon a topic is seen that was created, allowed or given partitions.
        "topic.metadata.refresh.interval.ms": 30_000,
        **kafka.client,
    }
    optional: dict[str, str | Path | SecretStr | None] = {
        "sasl.mechanism": kafka.sasl_mechanism,
        "sasl.username": kafka.sasl_username,
        "sasl.password": kafka.sasl_secret,
        "ssl.ca.location": kafka.ssl_ca_location,
        "ssl.certificate.location": kafka.ssl_certificate_location,
        "ssl.key.location": kafka.ssl_key_location,
        "ssl.key.password": kafka.ssl_key_secret,
    }
    for name, value in optional.items():
        if isinstance(value, SecretStr):
            properties[name] = value.get_secret_value()
        elif value is not None:
            properties[name] = str(value)
    return properties


def consumer_properties(settings: Settings, group: str | None = None) -> Properties:
    """The consumer of the chunk topic, or of the file topic with its `group`."""
    kafka = settings.kafka
    properties: Properties = {
        **common_properties(settings),
        "allow.auto.create.topics": False,
        "check.crcs": True,
        "logger": ClientLog(time.monotonic),
        "fetch.queue.backoff.ms": 20,
        "fetch.wait.max.ms": 100,
        "fetch.max.bytes": 16 << 20,
        # A pause throws away what was fetched ahead, so that is kept small.
        "fetch.message.max.bytes": 128 << 10,
        "queued.max.messages.kbytes": 16 << 10,
        "queued.min.messages": 100,
        **kafka.consumer,
        "group.id": group or kafka.group,
        "group.protocol": kafka.group_protocol,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": kafka.max_poll_interval_ms,
    }
    if kafka.group_instance_id is not None:
        properties["group.instance.id"] = kafka.group_instance_id
    timeout_ms = kafka.classic_session_timeout_ms
    if timeout_ms is not None:
        properties["session.timeout.ms"] = timeout_ms
        properties["heartbeat.interval.ms"] = min(3_000, timeout_ms // 3)
        properties["partition.assignment.strategy"] = "cooperative-sticky"
    return properties


def state_reader_properties(settings: Settings) -> Properties:
    """The reader of single state records: it is given its places and joins no group.

    A place outside the log leads to the log's start, whose offset then tells what became of the
    record. What a commit names was committed: there is nothing to wait for.
    """
    return {
        **consumer_properties(settings),
        "group.protocol": "classic",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
    }


def producer_properties(settings: Settings) -> Properties:
    """The producer of finals, events and dead letters: it never gives a record up."""
    return {
        **common_properties(settings),
        "compression.type": "lz4",
        "linger.ms": 2,
        "logger": ClientLog(time.monotonic),
        "queue.buffering.max.kbytes": 64 << 10,
        **settings.kafka.producer,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": PARTITIONER,
        # An outage of minutes must not fail a final.
        "message.timeout.ms": 0,
    }


def transactional_producer_properties(settings: Settings, name: str) -> Properties:
    """The producer of transactions; `name` is what a successor ends them by.

    A record that is not delivered within the time of its transaction aborts it, and is sent again
    with the next.
    """
    timeout_ms = settings.delivery.transaction_timeout_ms
    return {
        **producer_properties(settings),
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,
    }


def partials_producer_properties(settings: Settings) -> Properties:
    """The producer of partials, apart from the other so that they can be shed."""
    return {
        **producer_properties(settings),
        "queue.buffering.max.kbytes": 16 << 10,
        "message.timeout.ms": 30_000,
    }
