"""What the worker expects of a broker, tried on whichever one is here."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka import (
    Message,
    Topics,
    committed,
    consume_all,
    consumer,
    produce,
    wait_until,
)
from worker.devkafka import Broker, BrokerKind

UniqueTopics = Callable[..., Topics]


def fresh_group() -> str:
    return f"contract-{uuid.uuid4().hex[:8]}"


def test_key_value_headers_and_their_order_come_back_as_they_were_sent(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics = unique_topics()
    headers = (("encoding", b"mulaw"), ("roles", "agent,µ".encode()), ("encoding", b""))
    sent = Message(topics.chunks, b"call-1", b"\x00\xff", headers)

    ((partition, offset),) = produce(any_broker.bootstrap_servers, [sent])
    (got,) = consume_all(any_broker.bootstrap_servers, topics.chunks)

    assert (got.key, got.value, got.headers) == (b"call-1", b"\x00\xff", headers)
    assert (got.partition, got.offset) == (partition, offset)


def test_a_null_value_and_an_empty_one_stay_apart(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics = unique_topics()

    produce(
        any_broker.bootstrap_servers,
        [Message(topics.chunks, b"k", None), Message(topics.chunks, b"k", b"")],
    )

    assert [m.value for m in consume_all(any_broker.bootstrap_servers, topics.chunks)] == [
        None,
        b"",
    ]


def test_a_missing_key_stays_missing(any_broker: Broker, unique_topics: UniqueTopics) -> None:
    topics = unique_topics()

    produce(any_broker.bootstrap_servers, [Message(topics.chunks, None, b"v")])

    assert [m.key for m in consume_all(any_broker.bootstrap_servers, topics.chunks)] == [None]


def test_all_messages_of_a_key_share_a_partition_in_order(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics = unique_topics()
    keys = [b"call-%d" % (number % 7) for number in range(70)]

    produce(
        any_broker.bootstrap_servers,
        [Message(topics.chunks, key, b"%d" % number) for number, key in enumerate(keys)],
    )
    got = consume_all(any_broker.bootstrap_servers, topics.chunks)

    assert len(got) == 70
    for key in set(keys):
        mine = [message for message in got if message.key == key]
        assert len({message.partition for message in mine}) == 1
        assert [int(m.value or b"") for m in mine] == [n for n in range(70) if keys[n] == key]


def test_a_value_of_ten_megabytes_gets_through_where_the_topic_allows_it(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    if any_broker.kind is BrokerKind.MOCK:
        pytest.skip("the mock cluster keeps 5 MiB a partition")
    topics = unique_topics()
    value = bytes(10_000_000)

    produce(any_broker.bootstrap_servers, [Message(topics.files, b"k", value)])

    assert [m.value for m in consume_all(any_broker.bootstrap_servers, topics.files)] == [value]


def test_three_thousand_characters_of_commit_metadata_come_back(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics, group = unique_topics(), fresh_group()
    metadata = "".join(chr(33 + number % 90) for number in range(3000))
    place = TopicPartition(topics.chunks, 1, 42, metadata)
    committer = consumer(any_broker.bootstrap_servers, group)
    try:
        committer.commit(offsets=[place], asynchronous=False)
        (back,) = committer.committed([TopicPartition(topics.chunks, 1)], timeout=10)
    finally:
        committer.close()

    assert (back.offset, (back.metadata or "").rstrip("\0")) == (42, metadata)
    told = committed(any_broker.bootstrap_servers, group, topics.chunks)
    assert {n: (c.offset, c.metadata) for n, c in told.items()} == {1: (42, metadata)}


def test_a_partition_without_a_commit_is_left_out_of_the_group_s_commits(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics = unique_topics()

    assert committed(any_broker.bootstrap_servers, fresh_group(), topics.chunks) == {}


def test_metadata_beyond_the_broker_s_limit_is_refused(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    if any_broker.kind is BrokerKind.MOCK:
        pytest.skip("the mock cluster has no limit")
    topics = unique_topics()
    committer = consumer(any_broker.bootstrap_servers, fresh_group())
    try:
        # one character goes to the client's NUL, so 4095 fit and 4096 do not
        committer.commit(
            offsets=[TopicPartition(topics.chunks, 0, 1, "x" * 4095)], asynchronous=False
        )
        with pytest.raises(Exception, match="OFFSET_METADATA_TOO_LARGE"):
            committer.commit(
                offsets=[TopicPartition(topics.chunks, 0, 2, "x" * 4096)], asynchronous=False
            )
    finally:
        committer.close()


class Member:
    """A group member that remembers what it owns and what it was told."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        self.owned: set[int] = set()
        self.revoked: list[set[int]] = []
        self.client = consumer(
            bootstrap_servers,
            group,
            **{
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            },
        )
        self.client.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, client: Consumer, places: list[TopicPartition]) -> None:
        self.owned |= {place.partition for place in places}
        client.incremental_assign(places)

    def _on_revoke(self, client: Consumer, places: list[TopicPartition]) -> None:
        gone = {place.partition for place in places}
        self.revoked.append(gone)
        self.owned -= gone
        client.incremental_unassign(places)


def test_a_second_member_takes_over_partitions_without_stopping_the_others(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics, group = unique_topics(partitions=4), fresh_group()
    first = Member(any_broker.bootstrap_servers, group, topics.chunks)
    try:
        wait_until("one owner of all", lambda: _poll(first) and first.owned == {0, 1, 2, 3})
        second = Member(any_broker.bootstrap_servers, group, topics.chunks)
        try:
            wait_until(
                "half each",
                lambda: _poll(first, second) and len(first.owned) == len(second.owned) == 2,
            )
            assert first.owned | second.owned == {0, 1, 2, 3}
            assert sum(len(gone) for gone in first.revoked) == 2
        finally:
            second.client.close()
        wait_until("one owner again", lambda: _poll(first) and first.owned == {0, 1, 2, 3})
    finally:
        first.client.close()


def _poll(*members: Member) -> bool:
    for member in members:
        member.client.poll(0.02)
    return True


def test_a_member_reads_from_the_group_s_commit_on(
    any_broker: Broker, unique_topics: UniqueTopics
) -> None:
    topics, group = unique_topics(partitions=1), fresh_group()
    servers = any_broker.bootstrap_servers
    produce(servers, [Message(topics.chunks, b"k", b"%d" % n, partition=0) for n in range(5)])
    committer = consumer(servers, group)
    committer.commit(offsets=[TopicPartition(topics.chunks, 0, 3)], asynchronous=False)
    committer.close()

    reader = consumer(servers, group)
    reader.subscribe([topics.chunks])
    deadline = time.monotonic() + 30
    got: list[bytes | None] = []
    while len(got) < 2 and time.monotonic() < deadline:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            got.append(message.value())
    reader.close()

    assert got == [b"3", b"4"]
