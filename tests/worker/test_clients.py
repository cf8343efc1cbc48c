"""The clients are built as the commit rule needs them, and librdkafka knows every property."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Consumer, Producer

from worker.clients import (
    consumer_properties,
    partials_producer_properties,
    producer_properties,
    state_reader_properties,
)
from worker.settings import Settings

NOWHERE = "127.0.0.1:1"


def settings(**kafka) -> Settings:
    return Settings(kafka={"bootstrap_servers": NOWHERE, **kafka})


def test_the_client_commits_and_resets_nothing_by_itself():
    properties = consumer_properties(settings())

    assert properties["enable.auto.commit"] is False
    assert properties["enable.auto.offset.store"] is False
    assert properties["auto.offset.reset"] == "error"
    assert properties["isolation.level"] == "read_committed"
    assert properties["allow.auto.create.topics"] is False
    assert properties["partition.assignment.strategy"] == "cooperative-sticky"


def test_the_classic_protocol_states_its_session_timeout():
    assert consumer_properties(settings())["session.timeout.ms"] == 45_000
    short = consumer_properties(settings(session_timeout_ms=6_000))
    assert (short["session.timeout.ms"], short["heartbeat.interval.ms"]) == (6_000, 2_000)


def test_the_consumer_protocol_leaves_to_the_broker_what_is_the_brokers():
    properties = consumer_properties(settings(group_protocol="consumer"))

    for name in (
        *("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"),
        "group.instance.id",
    ):
        assert name not in properties


def test_a_group_and_a_static_member_name_are_passed_on():
    properties = consumer_properties(settings(group_instance_id="w-0"), group="calls.files")

    assert (properties["group.id"], properties["group.instance.id"]) == ("calls.files", "w-0")


def test_finals_are_never_given_up_and_partials_are():
    finals = producer_properties(settings())
    partials = partials_producer_properties(settings())

    assert finals["message.timeout.ms"] == 0
    assert 0 < int(partials["message.timeout.ms"]) < 60_000
    for properties in (finals, partials):
        assert properties["partitioner"] == "murmur2_random"
        assert (properties["enable.idempotence"], properties["acks"]) == (True, "all")


def test_further_properties_are_passed_on_to_their_clients():
    tuned = settings(
        client={"client.rack": "a"}, consumer={"fetch.wait.max.ms": 7}, producer={"linger.ms": 9}
    )

    assert consumer_properties(tuned)["client.rack"] == "a"
    assert consumer_properties(tuned)["fetch.wait.max.ms"] == 7
    assert producer_properties(tuned)["linger.ms"] == 9
    assert "linger.ms" not in consumer_properties(tuned)


def test_credentials_and_certificates_reach_the_client():
    properties = producer_properties(
        settings(
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="worker",
            sasl_password="hunter2",
            ssl_ca_location="/etc/ca.pem",
        )
    )

    assert properties["sasl.password"] == "hunter2"
    assert properties["sasl.username"] == "worker"
    assert properties["ssl.ca.location"] == "/etc/ca.pem"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_knows_every_property_of_the_consumer(protocol, logger, complaints):
    consumer = Consumer(consumer_properties(settings(group_protocol=protocol)), logger=logger)
    consumer.poll(0)
    consumer.close()

    assert complaints() == []


@pytest.mark.parametrize("build", [producer_properties, partials_producer_properties])
def test_librdkafka_knows_every_property_of_the_producers(build, logger, complaints):
    producer = Producer(build(settings()), logger=logger)
    producer.poll(0)

    assert complaints() == []


def test_a_property_of_the_wrong_client_would_be_complained_of(logger, complaints):
    producer = Producer({"bootstrap.servers": NOWHERE, "group.id": "x"}, logger=logger)
    producer.poll(0)

    assert len(complaints()) == 1


@pytest.fixture
def lines():
    return []


@pytest.fixture
def logger(lines):
    """Keeps what librdkafka says."""
    kept = logging.Logger("librdkafka")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    kept.addHandler(handler)
    return kept


@pytest.fixture
def complaints(lines):
    return lambda: [line for line in lines if "CONFWARN" in line]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_reader_of_state_records_joins_no_group_and_hears_where_a_log_begins(protocol):
    properties = state_reader_properties(settings(group_protocol=protocol))

    assert properties["group.protocol"] == "classic"
    assert properties["auto.offset.reset"] == "earliest"
    assert properties["enable.partition.eof"] is True
    assert properties["enable.auto.commit"] is False
    assert properties["isolation.level"] == "read_uncommitted"
    Consumer(properties).close()
