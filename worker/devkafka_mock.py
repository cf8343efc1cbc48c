"""librdkafka's in-process mock cluster: the last rung, where neither Java nor Docker is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def mock_cluster(say: Callable[[str], None]) -> Iterator[str]:
    """Bootstrap servers of a mock cluster that lives inside this process."""
    say(
        "using librdkafka's mock cluster: it keeps 5 MiB a partition, has no transactions worth "
        "the name and always 4 partitions a topic"
    )
    # the level hides the client's notice that its servers are replaced: that is the purpose
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 4})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)
