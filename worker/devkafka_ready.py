"""When does a broker answer?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from worker.devkafka import BrokerUnavailable

GIVEN_TIMEOUT_S = 10.0
_ATTEMPT_S = 1.0


@contextmanager
def given_broker(bootstrap_servers: str) -> Iterator[str]:
    """Checks that the named broker answers within ten seconds; raises `BrokerUnavailable`."""
    await_broker(bootstrap_servers, GIVEN_TIMEOUT_S)
    yield bootstrap_servers


def await_broker(
    bootstrap_servers: str, timeout_s: float, alive: Callable[[], bool] = lambda: True
) -> None:
    """Returns when the cluster has told its brokers.

    Raises `BrokerUnavailable` after `timeout_s`, or at once when `alive()` turns false.
    """
    # a client that meets a closed port waits longer and longer; a starting broker is met sooner so
    admin = AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not alive():
            raise BrokerUnavailable("the broker's process ended before it answered")
        try:
            if admin.list_topics(timeout=_ATTEMPT_S).brokers:
                return
        except KafkaException:
            continue
    raise BrokerUnavailable(f"{bootstrap_servers} does not answer within {timeout_s:.0f} s")
