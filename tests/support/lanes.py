"""What a lane, a committer and a loop talk to, as plain objects that remember."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from worker.commits import Commit
from worker.messages import Batch
from worker.metadata import Place
from worker.state_reference import StateReference, reference_to


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
        self.held: list[int] = []
        self.started: list[tuple[int, int]] = []
        self.rebalances: list[tuple[str, int]] = []
        self.ignored_maps = 0
        self.lost_messages = 0
        self.forgotten: list[int] = []

    def commit(self, partition: int, result: str) -> None:
        self.commits.append((partition, result))

    def map_chars(self, partition: int, chars: int) -> None:
        del partition
        self.chars.append(chars)

    def starts(self, partition: int, count: int) -> None:
        self.started.append((partition, count))

    def commit_held(self, partition: int) -> None:
        self.held.append(partition)

    def rebalance(self, event: str, assigned: int) -> None:
        self.rebalances.append((event, assigned))

    def lost(self, messages: int) -> None:
        self.lost_messages += messages

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
    topic_id: str = "topic-id"
    alive: bool = True
    wants_commit: bool = False
    start_counter: int = 0
    prepared: int = 0
    done: list[tuple[int, str]] = field(default_factory=list)

    def prepare_commit(self) -> Commit:
        self.prepared += 1
        told = (self.offset, self.metadata)
        return Commit(*told, lambda: self.done.append(told))


@dataclass
class Search:
    """A map that somebody looks for."""

    reference: StateReference
    answer: Callable[[str | None], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeStates:
    """A state topic of one partition; it writes and finds when the test says so."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.writing: list[tuple[Place, str, Callable[[StateReference | None], None]]] = []
        self.searches: list[Search] = []
        self.polls = 0
        self.closed = False

    def write(
        self, place: Place, text: str, on_written: Callable[[StateReference | None], None]
    ) -> None:
        self.writing.append((place, text, on_written))

    def read(self, reference: StateReference, on_found: Callable[[str | None], None]) -> Search:
        search = Search(reference, on_found)
        self.searches.append(search)
        return search

    def poll(self) -> None:
        self.polls += 1

    def close(self) -> None:
        self.closed = True

    def written(self, failed: bool = False) -> None:
        """The oldest write comes to its end."""
        _, text, on_written = self.writing.pop(0)
        if failed:
            on_written(None)
            return
        self.records.append(text)
        on_written(reference_to(text.encode(), 0, len(self.records) - 1))

    def found(self, gone: bool = False) -> None:
        """The oldest search comes to its end."""
        search = self.searches.pop(0)
        if search.cancelled:
            return
        if gone:
            search.answer(None)
            return
        text = self.records[search.reference.offset]
        assert search.reference.names(text.encode())
        search.answer(text)


class FakeReader:
    """A source whose batches the test lays out."""

    def __init__(self, topic: str = "chunks", on_close: Callable[[], None] | None = None) -> None:
        self.topic = topic
        self.batches: list[Batch] = []
        self.commits: list[tuple[int, int, str]] = []
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.waited: list[float] = []
        self.closed = False
        self.generation: object = None
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

    def member(self) -> object:
        return self.generation

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
