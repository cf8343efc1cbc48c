"""librdkafka's lines are the worker's: one event each, in its format, not ten a second."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.lanes import Clock
from worker.client_log import ClientLog
from worker.clients import consumer_properties, producer_properties
from worker.settings import Settings

SETTINGS = Settings(kafka={"bootstrap_servers": "127.0.0.1:1"})  # where nobody listens


def test_each_kind_of_line_is_told_once_a_minute_and_never_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = ClientLog(clock)
    caplog.set_level(logging.INFO)
    for _ in range(5):
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "refused")
    log.log(logging.INFO, "REQTMOUT [rdkafka#consumer-1] 100%")
    clock.now += 60
    log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "refused")

    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "librdkafka: FAIL [rdkafka#consumer-1] refused"),
        ("INFO", "librdkafka: REQTMOUT [rdkafka#consumer-1] 100%"),
        (
            "WARNING",
            "librdkafka: FAIL [rdkafka#consumer-1] refused (4 more since the last line like this)",
        ),
    ]


def test_a_request_that_times_out_is_not_hidden_behind_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ClientLog(Clock())
    caplog.set_level(logging.INFO)
    for request in ("MetadataRequest", "ProduceRequest", "ProduceRequest"):
        log.log(logging.INFO, "REQTMOUT [p-1] Timed out %s in flight (after 2000ms)", request)

    assert [r.getMessage().split()[5] for r in caplog.records] == [
        "MetadataRequest",
        "ProduceRequest",
    ]


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_a_client_that_reaches_nobody_says_so_in_our_log_and_not_on_standard_error(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "consumer":
        client = Consumer(consumer_properties(SETTINGS))
    else:
        client = Producer(producer_properties(SETTINGS))
    for _ in range(600):
        client.poll(0.1)
        if caplog.records:
            break
    if isinstance(client, Consumer):
        client.close()

    assert "Connection refused" in caplog.records[0].getMessage()
    assert "rdkafka" not in capfd.readouterr().err
