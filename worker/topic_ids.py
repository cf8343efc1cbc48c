"""The id that the cluster gave a topic: a recreated topic has another one."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0


def topic_id(admin: AdminClient, topic: str) -> str:
    """The topic's id, or its name where the brokers give none."""
    try:
        futures = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)
        return str(futures[topic].result(TIMEOUT_S).topic_id)
    except (KafkaException, TimeoutError) as error:
        logger.warning("no id of topic %s: %s", topic, error)
        return topic
