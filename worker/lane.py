"""What both lanes do alike: partitions come and go, and commits follow them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from worker.assignment import Start
from worker.commits import CommitCounters, CommitResult, Committable, Committer
from worker.messages import Batch, RawMessage
from worker.metadata import Place
from worker.session_map import MapError

logger = logging.getLogger(__name__)

ACK_WAIT_S = 0.5  # on revoke, for records that are on their way


class Reader(Protocol):
    """A source, as a lane uses it."""

    topic: str

    def poll(self, timeout_s: float) -> Batch: ...

    def commit(self, partition: int, offset: int, metadata: str) -> None: ...

    def pause(self, partitions: Sequence[int]) -> None: ...

    def resume(self, partitions: Sequence[int]) -> None: ...

    def close(self) -> None: ...

    @property
    def paused(self) -> frozenset[int]: ...


class LaneCounters(CommitCounters, Protocol):
    """What a lane counts."""

    def rebalance(self, event: str, assigned: int) -> None: ...

    def map_ignored(self) -> None: ...

    def forget(self, partition: int) -> None: ...


@dataclass(frozen=True, slots=True)
class LaneTools:
    """What a lane is built from."""

    topic_id: Callable[[], str]
    flush: Callable[[float], Any]  # wait for acknowledgements, at most so many seconds
    counters: LaneCounters
    now: Callable[[], float]
    commit_interval_s: float


class Owned(Committable, Protocol):
    """A partition for the time of its assignment."""

    def receive(self, raw: RawMessage) -> None:
        """Take the next message."""

    def drop(self) -> None:
        """The assignment is over: leave the engine, publish nothing more."""

    def end_reached(self) -> None:
        """Everything in the log has been received."""


P = TypeVar("P", bound=Owned)


class Lane(ABC, Generic[P]):
    """The partitions of one topic that this worker owns."""

    def __init__(self, tools: LaneTools) -> None:
        self.partitions: dict[int, P] = {}
        self.source: Reader | None = None  # set once the source, which calls back here, exists
        self._tools = tools
        self._committer = Committer(
            self._send_commit, tools.counters, tools.now, tools.commit_interval_s
        )

    @abstractmethod
    def _open(self, place: Place, metadata: str | None) -> P:
        """A partition that begins at a commit; raises MapError for metadata that is not ours."""

    def _closed(self, partition: P) -> None:
        """The partition has just been dropped."""

    def close(self) -> None:
        """Hand over all partitions and leave the group."""
        if self.source is not None:
            self.source.close()
            self.source = None

    def _receive(self, timeout_s: float) -> int:
        """Read and route what is there; returns the number of messages."""
        if self.source is None:
            return 0
        batch = self.source.poll(timeout_s)
        for raw in batch.messages:
            partition = self.partitions.get(raw.partition)
            # A message fetched before a revocation may still be in the batch.
            if partition is not None and partition.alive:
                partition.receive(raw)
        for number in batch.ended:
            if number in self.partitions:
                self.partitions[number].end_reached()
        return len(batch.messages)

    # -- the source's calls -------------------------------------------------------------------

    def assigned(self, starts: Sequence[Start]) -> None:
        topic_id = self._tools.topic_id() if starts else ""
        for start in starts:
            place = Place(topic_id, start.partition, start.offset)
            try:
                partition = self._open(place, start.metadata)
            except MapError as error:
                logger.warning(
                    "partition %d: the map in the commit is ignored, all above it is replayed: %s",
                    start.partition,
                    error.reason,
                )
                self._tools.counters.map_ignored()
                partition = self._open(place, None)
            self.partitions[start.partition] = partition
            self._committer.begin(partition)
        self._tools.counters.rebalance("assigned", len(self.partitions))
        logger.info("assigned %s", [start.partition for start in starts])

    def revoked(self, partitions: Sequence[int]) -> None:
        leaving = [self.partitions[n] for n in partitions if n in self.partitions]
        if leaving:
            self._tools.flush(ACK_WAIT_S)
        for partition in leaving:
            if partition.alive:
                self._committer.commit_last(partition)
        self._leave(leaving, "revoked")

    def lost(self, partitions: Sequence[int]) -> None:
        leaving = [self.partitions[n] for n in partitions if n in self.partitions]
        self._leave(leaving, "lost")

    def commit_answered(self, partition: int, result: CommitResult) -> None:
        current = self._committer.answered(partition, result)
        owned = self.partitions.get(partition)
        if current and result is CommitResult.LOST and owned is not None and owned.alive:
            # Somebody else may work on it by now; the group will tell us soon.
            self._drop(owned)

    # -- inside -------------------------------------------------------------------------------

    def _leave(self, leaving: Sequence[P], event: str) -> None:
        for partition in leaving:
            if partition.alive:
                self._drop(partition)
            self._committer.end(partition)
            self._tools.counters.forget(partition.number)
            del self.partitions[partition.number]
        self._tools.counters.rebalance(event, len(self.partitions))
        logger.info("%s %s", event, [partition.number for partition in leaving])

    def _drop(self, partition: P) -> None:
        partition.drop()
        self._closed(partition)

    def _send_commit(self, partition: int, offset: int, metadata: str) -> None:
        if self.source is not None:
            self.source.commit(partition, offset, metadata)
