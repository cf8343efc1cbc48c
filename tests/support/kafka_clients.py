"""Topics of a test's own, and messages in and out of them."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.support.record_checks import check_record
from worker.devkafka import Broker
from worker.feed import end_offset
from worker.messages import Headers, RawMessage
from worker.topics import TopicSpec, ensure_topics, touch_topics

POLL_S = 0.05
LARGEST_BYTES = 12 << 20


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of one test's topics; the fields are those of the settings."""

    chunks: str
    files: str
    transcripts: str
    partials: str
    events: str
    dead_letters: str
    state: str

    def environment(self) -> dict[str, str]:
        """Settings that point a worker at these topics."""
        names = {field.name: str(getattr(self, field.name)) for field in fields(self)}
        return {f"OASR_TOPICS__{field.upper()}": name for field, name in names.items()}


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send; without a partition the key chooses it, as murmur2 does."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: dict[str, str] | Headers = ()
    partition: int | None = None


def create_topics(broker: Broker, partitions: int = 3, replication: int = 1) -> Topics:
    """Seven fresh topics with names nobody used before; replication −1 is the broker's choice."""
    run = uuid.uuid4().hex[:12]
    topics = Topics(*(f"test.{run}.{field.name}" for field in fields(Topics)))
    config = {"max.message.bytes": str(LARGEST_BYTES)}
    specs = [
        TopicSpec(str(getattr(topics, field.name)), partitions, replication, config)
        for field in fields(topics)
    ]
    with admin_client(broker.bootstrap_servers) as admin:
        if broker.creates_topics:
            ensure_topics(admin, specs)
        else:
            touch_topics(admin, specs)
    _await_leaders(broker.bootstrap_servers, [spec.name for spec in specs])
    return topics


def _await_leaders(bootstrap_servers: str, names: list[str], timeout_s: float = 30.0) -> None:
    """A topic that is created exists, but for a moment nobody may serve it yet."""
    reader = consumer(bootstrap_servers, "nobody")
    try:
        for place in _all_partitions(reader, names, timeout_s):
            end_offset(reader, place, timeout_s)
    finally:
        reader.close()


@contextlib.contextmanager
def admin_client(bootstrap_servers: str) -> Iterable[AdminClient]:  # type: ignore[misc]
    """An admin client for the length of the block."""
    yield AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})


def producer(bootstrap_servers: str, **properties: str | int) -> Producer:
    """An idempotent producer that places keys like every producer of the product."""
    return Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "message.max.bytes": LARGEST_BYTES,
            "linger.ms": 2,
            "log_level": 3,
            **properties,
        }
    )


def consumer(bootstrap_servers: str, group: str, **properties: str | int | bool) -> Consumer:
    """A consumer that commits nothing by itself and starts at the log's beginning."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,
            "fetch.message.max.bytes": LARGEST_BYTES,
            "fetch.max.bytes": 2 * LARGEST_BYTES,
            "receive.message.max.bytes": 4 * LARGEST_BYTES,
            "log_level": 3,
            **properties,
        }
    )


def produce(
    bootstrap_servers: str, messages: Iterable[Message], timeout_s: float = 30.0
) -> list[tuple[int, int]]:
    """Sends the messages in order; (partition, offset) of each, in the same order."""
    sender = producer(bootstrap_servers)
    places: dict[int, tuple[int, int]] = {}
    errors: list[KafkaError] = []

    def delivered(number: int) -> Callable[[KafkaError | None, object], None]:
        def report(error: KafkaError | None, message: object) -> None:
            if error is not None:
                errors.append(error)
            else:
                places[number] = (message.partition(), message.offset())  # type: ignore[attr-defined]

        return report

    for number, message in enumerate(messages):
        headers = message.headers
        sender.produce(
            message.topic,
            key=message.key,
            value=message.value,
            headers=list(headers.items()) if isinstance(headers, dict) else list(headers),
            on_delivery=delivered(number),
            **({} if message.partition is None else {"partition": message.partition}),
        )
        sender.poll(0)
    left = sender.flush(timeout_s)
    if left or errors:
        raise AssertionError(f"{left} messages undelivered, errors: {errors}")
    return [places[number] for number in sorted(places)]


def consume_all(
    bootstrap_servers: str,
    topics: str | Sequence[str],
    until: Callable[[list[RawMessage]], bool] | None = None,
    timeout_s: float = 30.0,
) -> list[RawMessage]:
    """Everything on the topics from the start, in order within a partition.

    With `until`, reads on until it is true of all that was read, and fails after `timeout_s`;
    without, returns what is there at the time of the call. The group's offsets are not touched.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    reader = consumer(bootstrap_servers, f"reader-{uuid.uuid4().hex}")
    try:
        partitions = _all_partitions(reader, names, timeout_s)
        reader.assign(partitions)
        ends = _ends(reader, partitions, timeout_s)
        return _read(reader, until or _reached(ends), timeout_s)
    finally:
        reader.close()


def _all_partitions(reader: Consumer, names: list[str], timeout_s: float) -> list[TopicPartition]:
    deadline = time.monotonic() + timeout_s
    known = reader.list_topics(timeout=timeout_s).topics
    while not known.keys() >= set(names) and time.monotonic() < deadline:
        time.sleep(POLL_S)  # a broker hears of new topics a moment after they were created
        known = reader.list_topics(timeout=timeout_s).topics
    return [
        TopicPartition(name, partition, 0) for name in names for partition in known[name].partitions
    ]


def _ends(
    reader: Consumer, partitions: list[TopicPartition], timeout_s: float
) -> dict[tuple[str, int], int]:
    ends = {}
    for place in partitions:
        end = end_offset(reader, place, timeout_s)
        if end > 0:
            ends[place.topic, place.partition] = end
    return ends


def _reached(ends: dict[tuple[str, int], int]) -> Callable[[list[RawMessage]], bool]:
    def reached(messages: list[RawMessage]) -> bool:
        seen = {(message.topic, message.partition): message.offset + 1 for message in messages}
        return all(seen.get(place, 0) >= end for place, end in ends.items())

    return reached


def _read(
    reader: Consumer, until: Callable[[list[RawMessage]], bool], timeout_s: float
) -> list[RawMessage]:
    deadline = time.monotonic() + timeout_s
    messages: list[RawMessage] = []
    while not until(messages):
        if time.monotonic() > deadline:
            raise AssertionError(f"not there within {timeout_s} s; {len(messages)} messages read")
        for message in reader.consume(500, POLL_S):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(as_checked(message))
    return messages


def as_raw(message: object) -> RawMessage:
    """The client's message as the worker's plain data."""
    return RawMessage(
        topic=message.topic(),  # type: ignore[attr-defined]
        partition=message.partition(),  # type: ignore[attr-defined]
        offset=message.offset(),  # type: ignore[attr-defined]
        timestamp_ms=message.timestamp()[1],  # type: ignore[attr-defined]
        key=message.key(),  # type: ignore[attr-defined]
        value=message.value(),  # type: ignore[attr-defined]
        headers=tuple(message.headers() or ()),  # type: ignore[attr-defined]
    )


def as_checked(message: object) -> RawMessage:
    """The same; WrongRecord if it is a record of the worker and not by its schema."""
    raw = as_raw(message)
    check_record(raw.value, raw.headers)
    return raw


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed on one partition."""

    offset: int
    metadata: str


def committed(
    bootstrap_servers: str, group: str, topic: str, timeout_s: float = 30.0
) -> dict[int, Committed]:
    """The group's commits on the topic by partition; partitions without one are left out.

    Works while the group has members.
    """
    with admin_client(bootstrap_servers) as admin:
        known = admin.list_topics(topic, timeout=timeout_s).topics[topic].partitions
        question = ConsumerGroupTopicPartitions(
            group, [TopicPartition(topic, partition) for partition in known]
        )
        answers = admin.list_consumer_group_offsets([question], request_timeout=timeout_s)
        places = answers[group].result().topic_partitions
    return {
        place.partition: Committed(place.offset, (place.metadata or "").rstrip("\0"))
        for place in places
        if place.offset >= 0
    }


def wait_until(what: str, true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Returns as soon as `true()` is; fails naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_S)
