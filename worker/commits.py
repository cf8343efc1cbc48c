"""When to commit: one commit in flight per partition, and only what changed.

The client repeats offset commits without keeping their order, and an older map must not replace
a newer one; so the next commit of a partition waits for the answer to the last. A map that does
not fit in the metadata of a commit is written to the state topic first; the commit follows once
that record's place is known, and both together count as the one commit in flight.

The first commit of an owner counts it as one that began; leaving in order takes the count back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from worker.metadata import MAX_CHARS, Place, recounted
from worker.state_reference import StateReference, encode_reference

logger = logging.getLogger(__name__)

WARN_EVERY_S = 60.0
SLOW_STATE_S = 10.0  # a state record that takes longer is worth a word
ISOLATED_FROM = 5  # owners that began in a row: what the partition needs may not run here
HEALTHY_S = 300.0  # an owner that lives for so long is not one of those that keep dying


class CommitResult(Enum):
    """What the broker's answer to a commit means for its partition."""

    DONE = "done"
    RETRY = "retry"  # still dirty: the next tick tries again
    LOST = "lost"  # the partition is somebody else's
    TOO_LARGE = "too_large"
    FATAL = "fatal"  # the process has to be replaced


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset with its metadata, of any length, and what to call once it is acknowledged."""

    offset: int
    metadata: str
    on_done: Callable[[], None]


class Committable(Protocol):
    """A partition, as far as commits go."""

    number: int
    topic_id: str
    alive: bool
    wants_commit: bool
    start_counter: int  # goes into the metadata of what it prepares

    def prepare_commit(self) -> Commit:
        """What to commit now."""


WriteState = Callable[[Place, str, Callable[[StateReference | None], None]], None]


class CommitCounters(Protocol):
    """What commits are counted as."""

    def commit(self, partition: int, result: str) -> None: ...

    def map_chars(self, partition: int, chars: int) -> None: ...

    def starts(self, partition: int, count: int) -> None: ...

    def commit_held(self, partition: int) -> None:
        """A commit was not sent: the state record that it needs was not delivered."""


class Phase(Enum):
    """A partition's commit is awaited in two steps if its map needs a record of its own."""

    IDLE = "idle"
    WRITING = "writing"
    COMMITTING = "committing"


EDGES = {
    Phase.IDLE: {Phase.WRITING, Phase.COMMITTING},
    Phase.WRITING: {Phase.COMMITTING, Phase.IDLE},
    Phase.COMMITTING: {Phase.IDLE},
}


@dataclass(slots=True)
class _Ledger:
    """What is known of one partition's commits."""

    partition: Committable
    first: Commit | None  # until it is acknowledged the owner has not begun
    begun_at: float
    phase: Phase = Phase.IDLE
    last: tuple[int, str] | None = None  # acknowledged: offset and map
    sent: str = ""  # the metadata in flight: the map, or what names its record
    standing: tuple[int, str] | None = None  # acknowledged: offset and metadata
    last_at: float = float("-inf")
    in_flight: Commit | None = None
    warned_at: float = float("-inf")

    def move_to(self, phase: Phase, commit: Commit | None) -> None:
        """The only writer of `phase`; raises RuntimeError on an edge that is not in the table."""
        if phase not in EDGES[self.phase]:
            raise RuntimeError(f"commit: {self.phase} -> {phase}")
        self.phase, self.in_flight = phase, commit


class Committer:
    """Sends commits of the partitions that are assigned now."""

    def __init__(
        self,
        send: Callable[[int, int, str], None],
        write_state: WriteState,
        counters: CommitCounters,
        now: Callable[[], float],
        interval_s: float,
        max_chars: int = MAX_CHARS,
    ) -> None:
        """`max_chars` is the longest metadata that is committed without a state record."""
        self._send = send  # (partition, offset, metadata), asynchronous
        self._write_state = write_state
        self._max_chars = max_chars
        self._counters = counters
        self._now = now
        self._interval_s = interval_s
        self._ledgers: dict[int, _Ledger] = {}
        self._unanswered: set[int] = set()  # whose last commit is of an assignment that is over

    def begin(self, partition: Committable, first: Commit | None = None) -> None:
        """A partition was assigned; nothing else is committed before `first` is acknowledged."""
        self._ledgers[partition.number] = _Ledger(partition, first, self._now())

    @property
    def not_begun(self) -> frozenset[int]:
        """Partitions whose first commit is not acknowledged."""
        return frozenset(n for n, ledger in self._ledgers.items() if ledger.first is not None)

    def end(self, partition: Committable) -> None:
        """A partition is gone: what was dirty dies with it."""
        ledger = self._ledgers.get(partition.number)
        if ledger is not None and ledger.partition is partition:
            del self._ledgers[partition.number]
            if ledger.phase is Phase.COMMITTING:
                self._unanswered.add(partition.number)

    def tick(self) -> None:
        """Commit the partitions whose time has come."""
        now = self._now()
        for ledger in self._ledgers.values():
            due = now - ledger.last_at >= self._interval_s or ledger.partition.wants_commit
            if due and ledger.phase is Phase.IDLE and self._is_ours(ledger):
                self._commit(ledger, now)
            elif ledger.phase is Phase.WRITING and now - ledger.last_at >= SLOW_STATE_S:
                self._warn(ledger, "its map is still on its way to the state topic")

    def commit_last(self, partition: Committable) -> bool:
        """Commit once more before a hand-over, if that takes one step.

        False if a commit is in flight, which may be older, or if the map needs a state record,
        for which there is no time: the last commit stands. An heir then replays a little more,
        which is safe; two commits in flight are not.
        """
        ledger = self._ledgers.get(partition.number)
        if ledger is None or ledger.phase is Phase.COMMITTING or not self._is_ours(ledger):
            return False
        if ledger.first is not None:
            return False  # it has not begun
        if ledger.phase is Phase.WRITING:
            ledger.move_to(Phase.IDLE, None)  # no commit will name that record
        partition.start_counter = 0
        commit = self._prepared(ledger)
        if len(commit.metadata) > self._max_chars:
            self._counters.commit(partition.number, CommitResult.TOO_LARGE.value)
            self._uncount(ledger)
            return False
        if (commit.offset, commit.metadata) != ledger.last:
            self._send_commit(ledger, commit, commit.metadata)
        return True

    def hand_over(self, leaving: Iterable[Committable]) -> None:
        """Commit once more what leaves, as far as it is ours."""
        for partition in leaving:
            if partition.alive:
                self.commit_last(partition)

    def answered(self, number: int, result: CommitResult) -> bool:
        """The broker answered a commit; False if it is one of an assignment that is over."""
        self._counters.commit(number, result.value)
        if number in self._unanswered:
            self._unanswered.discard(number)
            return False
        ledger = self._ledgers.get(number)
        if ledger is None or ledger.in_flight is None or ledger.phase is not Phase.COMMITTING:
            return False
        commit = ledger.in_flight
        ledger.move_to(Phase.IDLE, None)
        if result is CommitResult.DONE:
            ledger.last = (commit.offset, commit.metadata)
            ledger.standing = (commit.offset, ledger.sent)
            if commit is ledger.first:
                ledger.first, ledger.begun_at = None, self._now()
            if ledger.partition.alive:
                commit.on_done()
        return True

    def not_healthy(self) -> None:
        """What runs apart has died: no partition that runs apart has proved to be healthy."""
        now = self._now()
        for ledger in self._ledgers.values():
            if ledger.partition.start_counter >= ISOLATED_FROM:
                ledger.begun_at = now

    def partitions(self) -> Iterable[Committable]:
        """The partitions that are assigned now."""
        return [ledger.partition for ledger in self._ledgers.values()]

    def _is_ours(self, ledger: _Ledger) -> bool:
        """Whether a commit may be sent: no answer to one of a former assignment is awaited."""
        return ledger.partition.alive and ledger.partition.number not in self._unanswered

    def _prepared(self, ledger: _Ledger) -> Commit:
        partition = ledger.partition
        partition.wants_commit = False
        commit = partition.prepare_commit()
        self._counters.map_chars(partition.number, len(commit.metadata))
        return commit

    def _commit(self, ledger: _Ledger, now: float) -> None:
        ledger.last_at = now
        if ledger.first is not None:
            self._send_commit(ledger, ledger.first, ledger.first.metadata)
            return
        if ledger.partition.start_counter and now - ledger.begun_at >= HEALTHY_S:
            ledger.partition.start_counter = 0
            self._counters.starts(ledger.partition.number, 0)
        commit = self._prepared(ledger)
        if (commit.offset, commit.metadata) == ledger.last:
            return
        if len(commit.metadata) <= self._max_chars:
            self._send_commit(ledger, commit, commit.metadata)
            return
        ledger.move_to(Phase.WRITING, commit)
        place = Place(ledger.partition.topic_id, ledger.partition.number, commit.offset)
        self._write_state(
            place, commit.metadata, lambda found: self._written(ledger, commit, place, found)
        )

    def _written(
        self, ledger: _Ledger, commit: Commit, place: Place, found: StateReference | None
    ) -> None:
        """The map lies on the state topic, or could not be written there."""
        if ledger.in_flight is not commit or self._ledgers.get(place.partition) is not ledger:
            return  # given up at a hand-over
        if not ledger.partition.alive:
            ledger.move_to(Phase.IDLE, None)
        elif found is None:
            ledger.move_to(Phase.IDLE, None)
            self._counters.commit_held(place.partition)
            self._warn(ledger, "its map could not be written to the state topic")
        else:
            self._send_commit(
                ledger, commit, encode_reference(found, place, ledger.partition.start_counter)
            )

    def _send_commit(self, ledger: _Ledger, commit: Commit, metadata: str) -> None:
        ledger.move_to(Phase.COMMITTING, commit)
        ledger.sent = metadata
        self._send(ledger.partition.number, commit.offset, metadata)

    def _uncount(self, ledger: _Ledger) -> None:
        """Commit what is committed once more, with no starts: the owner leaves in order."""
        if ledger.standing is None:
            return
        offset, metadata = ledger.standing
        place = Place(ledger.partition.topic_id, ledger.partition.number, offset)
        uncounted = recounted(metadata, place, 0)
        if uncounted != metadata:
            self._send_commit(ledger, Commit(offset, metadata, lambda: None), uncounted)

    def _warn(self, ledger: _Ledger, problem: str) -> None:
        now = self._now()
        if now - ledger.warned_at >= WARN_EVERY_S:
            ledger.warned_at = now
            logger.warning(
                "partition %d: %s; its commits wait, a restart would replay more",
                ledger.partition.number,
                problem,
            )
