"""The id that the cluster gave a topic: a recreated topic has another one."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from worker.assignment import Patience, is_transient

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0


def topic_id(admin: AdminClient, topic: str, patience: Patience | None = None) -> str:
    """The topic's id, or its name where the brokers give none.

    A passing failure must not look like another topic, whose maps are not ours: it is asked
    again, and in the end raised as KafkaException.
    """
    patience = patience or Patience()
    until_s = patience.now() + patience.limit_s
    try:
        return patience.ask(lambda: _described(admin, topic), until_s)
    except KafkaException as error:
        if is_transient(error):
            raise
        logger.warning("no id of topic %s: %s", topic, error)
        return topic


def _described(admin: AdminClient, topic: str) -> str:
    futures = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)
    try:
        return str(futures[topic].result(TIMEOUT_S).topic_id)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error
