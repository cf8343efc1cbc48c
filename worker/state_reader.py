"""Reads single records of the state topic, one after another, polled by the loop.

A record is proved gone when the log's start lies above its offset, when another record lies there,
or when the log has ended at or before its offset for longer than a change of leaders takes (the
topic was made anew). Everything else that goes wrong is tried again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from worker.state_reference import StateReference

logger = logging.getLogger(__name__)

ATTEMPT_S = 10.0  # without an answer the question is asked again
ENDED_FOR_S = 30.0  # after which a log that ends before the record proves that it is gone
WARN_EVERY_S = 60.0
_EVENTS_A_POLL = 100


class ReadCounters(Protocol):
    """What the reader counts."""

    def state_read(self, result: str) -> None:
        """`found`, `gone`, or `retried` for an attempt that led to nothing."""


@dataclass(slots=True)
class Wanted:
    """A record that is looked for."""

    reference: StateReference
    on_found: Callable[[bytes | None], None]
    cancelled: bool = False
    asked_at: float | None = None  # None: not yet
    ended_since: float | None = None  # since when the log is known to end before the record
    warned_at: float = float("-inf")

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self.cancelled = True


class StateReader:
    """Looks for one record at a time; the client exists from the first question on."""

    def __init__(
        self,
        topic: str,
        open_consumer: Callable[[], Consumer],
        counters: ReadCounters,
        now: Callable[[], float],
    ) -> None:
        self._topic = topic
        self._open_consumer = open_consumer
        self._counters = counters
        self._now = now
        self._consumer: Consumer | None = None
        self._wanted: deque[Wanted] = deque()

    def read(self, reference: StateReference, on_found: Callable[[bytes | None], None]) -> Wanted:
        """Look for a record; tells its value, or None once it is proved gone."""
        wanted = Wanted(reference, on_found)
        self._wanted.append(wanted)
        return wanted

    def poll(self) -> None:
        """Take what the client has, without waiting."""
        while self._wanted and self._wanted[0].cancelled:
            self._next()
        if not self._wanted:
            return
        wanted, now = self._wanted[0], self._now()
        if wanted.asked_at is None or now - wanted.asked_at >= ATTEMPT_S:
            self._ask(wanted, now)
        self._listen(wanted, now)

    def close(self) -> None:
        """Look for nothing more."""
        self._wanted.clear()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # -- inside -------------------------------------------------------------------------------

    def _ask(self, wanted: Wanted, now: float) -> None:
        if wanted.asked_at is not None:
            self._counters.state_read("retried")
            self._complain(wanted, now)
        wanted.asked_at = now
        if self._consumer is None:
            self._consumer = self._open_consumer()
        reference = wanted.reference
        place = TopicPartition(self._topic, reference.partition, reference.offset)
        try:
            self._consumer.assign([place])
        except KafkaException as error:
            logger.warning("%s: assign: %s", self._topic, error)

    def _complain(self, wanted: Wanted, now: float) -> None:
        if now - wanted.warned_at >= WARN_EVERY_S:
            wanted.warned_at = now
            logger.warning(
                "%s: the map at offset %d of partition %d cannot be read yet; "
                "the partition that it belongs to waits",
                self._topic,
                wanted.reference.offset,
                wanted.reference.partition,
            )

    def _listen(self, wanted: Wanted, now: float) -> None:
        for _ in range(_EVENTS_A_POLL):
            message = None if self._consumer is None else self._consumer.poll(0)
            if message is None:
                return
            if message.partition() != wanted.reference.partition:
                continue
            if self._heard(wanted, message, now):
                return

    def _heard(self, wanted: Wanted, message: Message, now: float) -> bool:
        """Whether the message settles the question."""
        error, offset = message.error(), message.offset()
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is not None and not at_end:
            logger.warning("%s: %s", self._topic, error.str())
        elif (
            offset is None
            or offset < wanted.reference.offset
            or (at_end and offset == wanted.reference.offset)
        ):
            return self._ends_before(wanted, now)
        elif at_end or offset > wanted.reference.offset:
            return self._settle(wanted, None)
        else:
            value = message.value() or b""
            return self._settle(wanted, value if wanted.reference.names(value) else None)
        return False

    def _ends_before(self, wanted: Wanted, now: float) -> bool:
        """The log ended before the record a moment ago, or begins anew below it."""
        if wanted.ended_since is None:
            wanted.ended_since = now
        if now - wanted.ended_since >= ENDED_FOR_S:
            return self._settle(wanted, None)
        return False

    def _settle(self, wanted: Wanted, value: bytes | None) -> bool:
        self._counters.state_read("gone" if value is None else "found")
        self._next()
        wanted.on_found(value)
        return True

    def _next(self) -> None:
        self._wanted.popleft()
        if self._consumer is not None:
            self._consumer.unassign()
