"""The Kafka clients behind the transactions of one lane."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from worker.clients import transactional_producer_properties
from worker.connections import connection
from worker.messages import Kind
from worker.metadata import MAX_CHARS
from worker.settings import Settings
from worker.transaction_client import Pause
from worker.transaction_thread import TransactionThread
from worker.transactor import Committed, Transactor, TransactorTools

QUESTION_S = 5.0  # for what is committed


def transaction_thread(
    settings: Settings, group: str, topic: str, topics: Mapping[Kind, str]
) -> TransactionThread:
    """Carries out the transactions of the lane that reads `topic` in `group`."""
    member = settings.kafka.group_instance_id or uuid.uuid4().hex
    properties = transactional_producer_properties(settings, f"{group}-{member}")

    def make(pause: Pause) -> Transactor:
        return Transactor(
            TransactorTools(
                make_producer=lambda: Producer(properties),  # type: ignore[return-value, arg-type]
                committed=committed_by(settings, group, topic),
                group=group,
                topic=topic,
                topics=topics,
                now=time.monotonic,
                pause=pause,
                max_chars=MAX_CHARS,
            )
        )

    return TransactionThread(make, f"transactions of {topic}")


def committed_by(
    settings: Settings, group: str, topic: str
) -> Callable[[Sequence[int]], Committed]:
    """Asks what a group has committed on partitions of a topic, once nothing of it is pending.

    KafkaException if there is no answer. Works beside the group's own consumers, in any thread.
    """
    admin = AdminClient(connection(settings))

    def ask(partitions: Sequence[int]) -> Committed:
        if not partitions:
            return {}
        question = ConsumerGroupTopicPartitions(
            group, [TopicPartition(topic, number) for number in partitions]
        )
        answers = admin.list_consumer_group_offsets(
            [question], require_stable=True, request_timeout=QUESTION_S
        )
        places = answers[group].result().topic_partitions
        return {
            place.partition: (place.offset, (place.metadata or "").removesuffix("\0"))
            for place in places
        }

    return ask
