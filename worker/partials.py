"""Partials to the broker: what can be revised can also be shed.

They have a producer of their own, so that a backlog of them can be thrown away without touching
a final.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from worker.messages import Kind, OutRecord
from worker.seldom import Seldom

logger = logging.getLogger(__name__)

_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class PartialCounters(Protocol):
    """What partials are counted as."""

    def produced(self, kind: Kind) -> None: ...

    def partial_shed(self) -> None: ...


class Partials:
    """Sends partials, and drops them where there is no room."""

    def __init__(
        self,
        make_producer: Callable[[], Producer],
        topic: str,
        counters: PartialCounters,
        now: Callable[[], float],
    ) -> None:
        self._make_producer = make_producer
        self._producer = make_producer()
        self._topic = topic
        self._counters = counters
        self._on_their_way = 0
        self._seldom = Seldom(now)

    def send(self, record: OutRecord) -> None:
        """Publish a partial, if there is room for it."""
        sender = self._producer

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if sender is not self._producer:  # counted when its producer was replaced
                return
            self._on_their_way -= 1
            if error is None:
                self._counters.produced(Kind.PARTIAL)
            else:
                self._shed(error)

        try:
            sender.produce(
                self._topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        except BufferError:
            self._shed(None)
        except KafkaException as error:
            self._shed(error.args[0])
        else:
            self._on_their_way += 1

    def poll(self) -> None:
        """Serve delivery reports; a producer that died is replaced, what it had is shed."""
        try:
            self._producer.poll(0)
        except KafkaException as error:  # how the client tells that it is dead
            logger.error("the producer of partials is replaced: %s", error.args[0].str())
            self._producer = self._make_producer()
            for _ in range(self._on_their_way):
                self._counters.partial_shed()
            self._on_their_way = 0

    def _shed(self, error: KafkaError | None) -> None:
        """One is dropped, for an error or because the producer's queue is full."""
        self._counters.partial_shed()
        if error is not None and error.code() in _PURGED:  # it is our own wish
            return
        ending = self._seldom.ending(None if error is None else error.code())
        if ending is not None:
            reason = "the producer's queue is full" if error is None else error.str()
            logger.warning("partials to %s are dropped: %s%s", self._topic, reason, ending)

    def flush(self, timeout_s: float) -> bool:
        """Nobody waits for partials: what must arrive does not go this way."""
        del timeout_s
        return True

    def close(self) -> None:
        """Give up what is still queued."""
        self._producer.purge()
        self.poll()
