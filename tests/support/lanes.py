"""What a lane, a committer and a loop talk to, as plain objects that remember."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from worker.commits import Commit
from worker.messages import Batch
from worker.session_map import MapTooLarge


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class LaneCounts:
    """Counters of commits and assignments."""

    def __init__(self) -> None:
        self.commits: list[tuple[int, str]] = []
        self.chars: list[int] = []
        self.rebalances: list[tuple[str, int]] = []
        self.ignored_maps = 0
        self.forgotten: list[int] = []

    def commit(self, partition: int, result: str) -> None:
        self.commits.append((partition, result))

    def map_chars(self, partition: int, chars: int) -> None:
        del partition
        self.chars.append(chars)

    def rebalance(self, event: str, assigned: int) -> None:
        self.rebalances.append((event, assigned))

    def map_ignored(self) -> None:
        self.ignored_maps += 1

    def forget(self, partition: int) -> None:
        self.forgotten.append(partition)


@dataclass
class FakePartition:
    """A partition whose commit is what the test sets."""

    number: int
    offset: int = 0
    metadata: str = "map"
    too_large: bool = False
    alive: bool = True
    wants_commit: bool = False
    prepared: int = 0
    done: list[tuple[int, str]] = field(default_factory=list)

    def prepare_commit(self) -> Commit:
        self.prepared += 1
        if self.too_large:
            raise MapTooLarge(5000)
        told = (self.offset, self.metadata)
        return Commit(*told, lambda: self.done.append(told))


class FakeReader:
    """A source whose batches the test lays out."""

    def __init__(self, topic: str = "chunks", on_close: Callable[[], None] | None = None) -> None:
        self.topic = topic
        self.batches: list[Batch] = []
        self.commits: list[tuple[int, int, str]] = []
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.waited: list[float] = []
        self.closed = False
        self._paused: set[int] = set()
        self._on_close = on_close

    @property
    def paused(self) -> frozenset[int]:
        return frozenset(self._paused)

    def poll(self, timeout_s: float) -> Batch:
        self.waited.append(timeout_s)
        return self.batches.pop(0) if self.batches else Batch([])

    def commit(self, partition: int, offset: int, metadata: str) -> None:
        self.commits.append((partition, offset, metadata))

    def pause(self, partitions: Sequence[int]) -> None:
        if partitions:
            self.calls.append(("pause", tuple(partitions)))
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        if partitions:
            self.calls.append(("resume", tuple(partitions)))
        self._paused.difference_update(partitions)

    def close(self) -> None:
        self.closed = True
        if self._on_close is not None:
            self._on_close()
