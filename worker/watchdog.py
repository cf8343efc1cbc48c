"""Finds partitions that silently stopped: messages lie behind the position, and none comes.

A client that has lost a partition says nothing, and what it knows of the log's end is as old as
its last fetch; so the end is asked for on another connection. First the partition is sought anew
at its position; if that does not help, the process has to be replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from worker.producer import FatalClientError

logger = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 1.0
ASK_EVERY_S: Final = 10.0


class Ends(Protocol):
    """Who knows where logs end."""

    def ask(self, numbers: Iterable[int]) -> None:
        """Ask for the ends of partitions; nobody waits for the answer."""

    def take(self) -> Mapping[int, int] | None:
        """The answer to the last question, once: offsets behind the last readable message."""


class StallCounters(Protocol):
    """What the watchdog counts."""

    def stalled(self, event: str) -> None: ...


@dataclass(slots=True)
class _Watched:
    """A partition and since when it has stood where it stands."""

    position: int
    since: float
    sought: bool = False
    ends_before: bool = False  # somebody said that the log ends before the position


class Watchdog:
    """Watches the partitions of one topic."""

    def __init__(
        self,
        topic: str,
        ends: Ends,
        counters: StallCounters,
        now: Callable[[], float],
        limit_s: float,
    ) -> None:
        """`limit_s` is how long a partition may stand while there are messages to read."""
        self._topic = topic
        self._ends = ends
        self._counters = counters
        self._now = now
        self._limit_s = limit_s
        self._watched: dict[int, _Watched] = {}
        self._next_check = 0.0
        self._next_question = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time to check."""
        return self._now() >= self._next_check

    def check(self, positions: Mapping[int, int], seek: Callable[[int, int], None]) -> None:
        """Look at the next offset to read of each partition that is being read.

        Calls `seek(partition, position)` for one that stands, and raises FatalClientError if it
        stands all the same.
        """
        now = self._now()
        self._next_check = now + CHECK_EVERY_S
        self._note(positions, now)
        ends = self._ends.take()
        for number, end in (ends or {}).items():
            watched = self._watched.get(number)
            if watched is not None and now - watched.since >= self._limit_s:
                self._judge(number, watched, end, seek)
        standing = [n for n, w in self._watched.items() if now - w.since >= self._limit_s]
        if standing and now >= self._next_question:
            self._next_question = now + ASK_EVERY_S
            self._ends.ask(standing)

    def _note(self, positions: Mapping[int, int], now: float) -> None:
        """A partition that moved, or is read again after a pause, begins anew."""
        before, self._watched = self._watched, {}
        for number, position in positions.items():
            watched = before.get(number)
            if watched is None or watched.position != position:
                watched = _Watched(position, now)
            self._watched[number] = watched

    def _judge(
        self, number: int, watched: _Watched, end: int, seek: Callable[[int, int], None]
    ) -> None:
        if end == watched.position:
            return
        stands = (
            f"{self._topic}/{number}: the log ends at {end}, and for {self._limit_s:.0f} s"
            f" nothing has come from {watched.position}"
        )
        ends_before = end < watched.position
        was_tried = watched.ends_before if ends_before else watched.sought
        if was_tried:
            self._counters.stalled("given_up")
            raise FatalClientError(stands)
        watched.since, watched.ends_before = self._now(), ends_before
        if ends_before:  # a new leader learns only after a moment how much of its log is committed
            logger.warning("%s; it is asked again", stands)
            return
        logger.warning("%s; it is sought there anew", stands)
        self._counters.stalled("sought")
        watched.sought = True
        seek(number, watched.position)


class LogEnds:
    """Asks the brokers, through an admin client, and waits for none of them."""

    def __init__(self, admin: Any, topic: str) -> None:
        self._admin = admin
        self._topic = topic
        self._futures: dict[int, Any] = {}

    def ask(self, numbers: Iterable[int]) -> None:
        """Forgets a former question."""
        places = {TopicPartition(self._topic, n): OffsetSpec.latest() for n in numbers}  # type: ignore[no-untyped-call]
        try:
            futures = self._admin.list_offsets(
                places, isolation_level=IsolationLevel.READ_COMMITTED
            )
        except KafkaException as error:
            logger.warning("%s: the ends of its logs: %s", self._topic, error.args[0].str())
            return
        self._futures = {place.partition: future for place, future in futures.items()}

    def take(self) -> Mapping[int, int] | None:
        """None while an answer is on its way; partitions without one are left out."""
        if not self._futures or not all(future.done() for future in self._futures.values()):
            return None
        futures, self._futures = self._futures, {}
        return {
            number: future.result().offset
            for number, future in futures.items()
            if future.exception() is None
        }
