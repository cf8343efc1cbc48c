"""When to commit: one commit in flight per partition, and only what changed.

The client repeats offset commits without keeping their order, and an older map must not replace
a newer one; so the next commit of a partition waits for the answer to the last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from worker.session_map import MapTooLarge

logger = logging.getLogger(__name__)

WARN_EVERY_S = 60.0


class CommitResult(Enum):
    """What the broker's answer to a commit means for its partition."""

    DONE = "done"
    RETRY = "retry"  # still dirty: the next tick tries again
    LOST = "lost"  # the partition is somebody else's
    TOO_LARGE = "too_large"
    FATAL = "fatal"  # the process has to be replaced


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset with its metadata, and what to tell the partition once it is acknowledged."""

    offset: int
    metadata: str
    on_done: Callable[[], None]


class Committable(Protocol):
    """A partition, as far as commits go."""

    number: int
    alive: bool
    wants_commit: bool

    def prepare_commit(self) -> Commit:
        """What to commit now; raises MapTooLarge when the map does not fit."""


class CommitCounters(Protocol):
    """What commits are counted as."""

    def commit(self, partition: int, result: str) -> None: ...

    def map_chars(self, partition: int, chars: int) -> None: ...


@dataclass(slots=True)
class _Ledger:
    """What is known of one partition's commits."""

    partition: Committable
    last: tuple[int, str] | None = None
    last_at: float = float("-inf")
    in_flight: Commit | None = None
    warned_at: float = float("-inf")


class Committer:
    """Sends commits of the partitions that are assigned now."""

    def __init__(
        self,
        send: Callable[[int, int, str], None],
        counters: CommitCounters,
        now: Callable[[], float],
        interval_s: float,
    ) -> None:
        self._send = send  # (partition, offset, metadata), asynchronous
        self._counters = counters
        self._now = now
        self._interval_s = interval_s
        self._ledgers: dict[int, _Ledger] = {}
        self._unanswered: set[int] = set()  # whose last commit is of an assignment that is over

    def begin(self, partition: Committable) -> None:
        """A partition was assigned."""
        self._ledgers[partition.number] = _Ledger(partition)

    def end(self, partition: Committable) -> None:
        """A partition is gone: what was dirty dies with it."""
        ledger = self._ledgers.get(partition.number)
        if ledger is not None and ledger.partition is partition:
            del self._ledgers[partition.number]
            if ledger.in_flight is not None:
                self._unanswered.add(partition.number)

    def tick(self) -> None:
        """Commit the partitions whose time has come."""
        now = self._now()
        for ledger in self._ledgers.values():
            due = now - ledger.last_at >= self._interval_s or ledger.partition.wants_commit
            if due and self._is_free(ledger):
                self._commit(ledger, now)

    def commit_last(self, partition: Committable) -> bool:
        """Commit once more before a hand-over; False if one is in flight, which may be older.

        An heir then replays a little more, which is safe; two commits in flight are not.
        """
        ledger = self._ledgers.get(partition.number)
        if ledger is None or not self._is_free(ledger):
            return False
        self._commit(ledger, self._now())
        return True

    def answered(self, number: int, result: CommitResult) -> bool:
        """The broker answered a commit; False if it is one of an assignment that is over."""
        self._counters.commit(number, result.value)
        if number in self._unanswered:
            self._unanswered.discard(number)
            return False
        ledger = self._ledgers.get(number)
        if ledger is None or ledger.in_flight is None:
            return False
        commit, ledger.in_flight = ledger.in_flight, None
        if result is CommitResult.DONE:
            ledger.last = (commit.offset, commit.metadata)
            if ledger.partition.alive:
                commit.on_done()
        return True

    def partitions(self) -> Iterable[Committable]:
        """The partitions that are assigned now."""
        return [ledger.partition for ledger in self._ledgers.values()]

    def _is_free(self, ledger: _Ledger) -> bool:
        """Whether a commit may be sent: the partition is ours and the last one was answered."""
        number = ledger.partition.number
        return (
            ledger.partition.alive and ledger.in_flight is None and number not in self._unanswered
        )

    def _commit(self, ledger: _Ledger, now: float) -> None:
        ledger.last_at = now
        ledger.partition.wants_commit = False
        try:
            commit = ledger.partition.prepare_commit()
        except MapTooLarge as error:
            self._too_large(ledger, error, now)
            return
        self._counters.map_chars(ledger.partition.number, len(commit.metadata))
        if (commit.offset, commit.metadata) == ledger.last:
            return
        ledger.in_flight = commit
        self._send(ledger.partition.number, commit.offset, commit.metadata)

    def _too_large(self, ledger: _Ledger, error: MapTooLarge, now: float) -> None:
        self._counters.commit(ledger.partition.number, CommitResult.TOO_LARGE.value)
        self._counters.map_chars(ledger.partition.number, error.chars)
        if now - ledger.warned_at >= WARN_EVERY_S:
            ledger.warned_at = now
            logger.warning(
                "partition %d: %s; commits wait until calls end, a restart would replay more",
                ledger.partition.number,
                error,
            )
