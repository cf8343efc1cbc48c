"""Records to the broker: finals, events and dead letters never give up, partials may.

All callbacks run inside `poll`, in the loop's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from worker.messages import Kind, OutRecord
from worker.partials import PartialCounters, Partials
from worker.seldom import Seldom

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 1.0
RENEW_AFTER_S = 60.0  # a second producer that dies sooner has a reason that a third will meet too
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE,)


class FatalClientError(Exception):
    """The Kafka client cannot go on; the process has to be replaced."""


class SinkCounters(PartialCounters, Protocol):
    """What the sink counts."""

    def produce_error(self, kind: Kind) -> None: ...


@dataclass(frozen=True, slots=True)
class _Outgoing:
    record: OutRecord
    on_ack: Callable[[], None] | None


class Sink:
    """Sends records and calls back when the broker has them."""

    def __init__(
        self,
        make_durable: Callable[[], Producer],
        make_partials: Callable[[], Producer],
        topics: Mapping[Kind, str],
        counters: SinkCounters,
        now: Callable[[], float],
    ) -> None:
        self._make_durable = make_durable
        self._durable = make_durable()
        self._renewed_at = float("-inf")
        self._partials = Partials(make_partials, topics[Kind.PARTIAL], counters, now)
        self._seldom = Seldom(now)
        self._topics = dict(topics)
        self._counters = counters
        self._now = now
        self._waiting: deque[_Outgoing] = deque()  # the client's queue is full
        self._retries: deque[tuple[float, _Outgoing]] = deque()
        self._sent: dict[int, _Outgoing] = {}  # the client has them, by number, in order
        self._placing: dict[int, Callable[[tuple[int, int] | None], None]] = {}  # the same
        self._next_number = 0
        self._unacknowledged = 0
        self._fatal: KafkaError | None = None

    @property
    def unacknowledged(self) -> int:
        """Durable records that the broker has not confirmed."""
        return self._unacknowledged

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        """Publish a record; a partial is dropped when there is no room for it."""
        if record.kind is Kind.PARTIAL:
            self._partials.send(record)
            return
        self._unacknowledged += 1
        outgoing = _Outgoing(record, on_ack)
        if self._waiting or not self._try(outgoing):
            self._waiting.append(outgoing)

    def send_once(
        self, record: OutRecord, on_placed: Callable[[tuple[int, int] | None], None]
    ) -> None:
        """Publish a durable record; tells its partition and offset, or None if that failed.

        Nothing waits for it: who sent it decides what to do when it failed.
        """

        number = self._next_number
        self._next_number += 1
        self._placing[number] = on_placed

        def delivered(error: KafkaError | None, message: Message) -> None:
            if self._placing.pop(number, None) is None:  # its producer was replaced
                return
            if error is not None:
                self._not_placed(record.kind, error, on_placed)
                return
            self._counters.produced(record.kind)
            partition, offset = message.partition(), message.offset()
            if partition is None or offset is None or offset < 0:
                on_placed(None)  # it is there, but nobody knows where
            else:
                on_placed((partition, offset))

        try:
            self._durable.produce(
                self._topics[record.kind],
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=delivered,
            )
        except BufferError:
            del self._placing[number]
            on_placed(None)
        except KafkaException as error:
            del self._placing[number]
            self._not_placed(record.kind, error.args[0], on_placed)

    def _not_placed(
        self,
        kind: Kind,
        error: KafkaError,
        on_placed: Callable[[tuple[int, int] | None], None],
    ) -> None:
        self._counters.produce_error(kind)
        if _is_fatal(error):
            self._fatal = error
        self._complain(kind, error, "not delivered")
        on_placed(None)

    def poll(self) -> None:
        """Serve delivery reports and send what waited.

        A producer that died is replaced; FatalClientError if the next one dies soon as well.
        """
        self._serve(0)
        self._partials.poll()
        now = self._now()
        while self._retries and self._retries[0][0] <= now:
            self._waiting.append(self._retries.popleft()[1])
        while self._waiting and self._try(self._waiting[0]):
            self._waiting.popleft()

    def flush(self, timeout_s: float) -> bool:
        """Wait for outstanding durable records; False if some are left."""
        deadline = self._now() + timeout_s
        while self._unacknowledged and self._now() < deadline:
            self.poll()
            self._serve(0.02)
        return self._unacknowledged == 0

    def close(self) -> None:
        """Give up partials that are still queued."""
        self._partials.close()

    def _serve(self, timeout_s: float) -> None:
        try:
            self._durable.poll(timeout_s)
        except KafkaException as error:  # how the client tells that it is dead
            self._fatal = error.args[0]
        if self._fatal is not None:
            self._renew(self._fatal)

    def _renew(self, reason: KafkaError) -> None:
        """Replace a dead producer and send again what it was not known to have delivered."""
        now = self._now()
        if now - self._renewed_at < RENEW_AFTER_S:
            raise FatalClientError(f"producer: {reason.str()}")
        logger.error(
            "the producer is replaced, %d records are sent again: %s", len(self._sent), reason.str()
        )
        self._renewed_at, self._fatal = now, None
        self._durable = self._make_durable()
        # In their order, before whatever waits: nobody will report on them any more.
        self._waiting.extendleft(reversed(self._sent.values()))
        self._sent.clear()
        placing, self._placing = self._placing, {}
        for on_placed in placing.values():
            on_placed(None)

    def _try(self, outgoing: _Outgoing) -> bool:
        """Hand a record to the client; False if its queue is full."""
        record = outgoing.record
        number = self._next_number

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._delivered(number, error)

        arguments: dict[str, Any] = {
            "value": record.value,
            "key": record.key,
            "headers": list(record.headers),
            "on_delivery": delivered,
        }
        try:
            self._durable.produce(self._topics[record.kind], **arguments)
        except BufferError:
            return False
        except KafkaException as error:
            if _is_fatal(error.args[0]):
                self._fatal = error.args[0]
                return False
            self._failed(outgoing, error.args[0])
        else:
            self._next_number += 1
            self._sent[number] = outgoing
        return True

    def _delivered(self, number: int, error: KafkaError | None) -> None:
        if error is not None and _is_fatal(error):
            self._fatal = error  # the record stays among those to send again
            return
        outgoing = self._sent.pop(number, None)
        if outgoing is None:  # a report of a producer that was replaced
            return
        if error is not None:
            self._failed(outgoing, error)
            return
        self._unacknowledged -= 1
        self._counters.produced(outgoing.record.kind)
        if outgoing.on_ack is not None:
            outgoing.on_ack()

    def _failed(self, outgoing: _Outgoing, error: KafkaError) -> None:
        """Keep the record: it is sent again until the broker takes it."""
        kind = outgoing.record.kind
        self._counters.produce_error(kind)
        self._complain(kind, error, "not delivered, will be sent again")
        if error.code() in _TOO_LARGE:
            outgoing = replace(outgoing, record=smaller(outgoing.record))
        self._retries.append((self._now() + RETRY_AFTER_S, outgoing))

    def _complain(self, kind: Kind, error: KafkaError, what: str) -> None:
        ending = self._seldom.ending((kind, error.code()))
        if ending is not None:
            topic = self._topics[kind]
            logger.error("%s record to %s %s: %s%s", kind.value, topic, what, error.str(), ending)


def _is_fatal(error: KafkaError) -> bool:
    return error.fatal() or error.code() == KafkaError._FATAL


def smaller(record: OutRecord) -> OutRecord:
    """What its topic may take of a record that is too large.

    A dead letter goes without its value: the headers say where the original lies.
    """
    if record.kind is not Kind.DEAD_LETTER or not record.value:
        return record
    return replace(record, value=b"", headers=(*record.headers, ("value.dropped", b"true")))
