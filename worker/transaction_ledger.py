"""What is known of the commits of one partition that is committed in transactions."""

from __future__ import annotations

from dataclasses import dataclass

from worker.commits import HEALTHY_S, Commit, CommitCounters, Committable
from worker.metadata import Place
from worker.transactions import Position


@dataclass(slots=True)
class Ledger:
    """One assignment of a partition; times are monotonic seconds."""

    partition: Committable
    first: Commit | None  # until it is acknowledged the owner has not begun
    begun_at: float
    last: tuple[int, str] | None = None  # acknowledged: offset and map
    asked_at: float = float("-inf")  # what to commit

    def wants(self, now: float, interval_s: float) -> bool:
        """Whether to ask what to commit though there are no records."""
        waited = now - self.asked_at >= interval_s
        return self.partition.alive and (waited or self.partition.wants_commit)

    def prepare(self, now: float, leaves: bool, counters: CommitCounters) -> Commit:
        """What to commit now."""
        partition = self.partition
        self.asked_at = now
        if self.first is not None:
            return self.first
        if leaves:
            partition.start_counter = 0
        elif partition.start_counter and now - self.begun_at >= HEALTHY_S:
            partition.start_counter = 0
            counters.starts(partition.number, 0)
        partition.wants_commit = False
        commit = partition.prepare_commit()
        counters.map_chars(partition.number, len(commit.metadata))
        return commit

    def knows(self, commit: Commit) -> bool:
        """Whether it is the one that was acknowledged last."""
        return (commit.offset, commit.metadata) == self.last

    def position(self, commit: Commit) -> Position:
        """The commit as a part of a transaction."""
        partition = self.partition
        # What an owner commits first may be just what stands there, from an owner that counted.
        moved = commit is not self.first and not self.knows(commit)
        place = Place(partition.topic_id, partition.number, commit.offset)
        return Position(place, commit.metadata, partition.start_counter, moved)

    def acknowledged(self, commit: Commit, now: float) -> None:
        """The commit is what the group has now."""
        self.last = (commit.offset, commit.metadata)
        if commit is self.first:
            self.first, self.begun_at = None, now
        if self.partition.alive:
            commit.on_done()
