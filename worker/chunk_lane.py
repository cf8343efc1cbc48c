"""The lane of live calls: its source, its partitions and their commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from worker.assignment import Start
from worker.backpressure import Backpressure
from worker.commits import CommitCounters, CommitResult, Committer
from worker.messages import RawMessage
from worker.metadata import Place
from worker.partition import Partition, Surroundings
from worker.session_map import MapError, SessionMap
from worker.session_map_codec import decode_metadata

logger = logging.getLogger(__name__)

TICK_INTERVAL_S = 0.1
ACK_WAIT_S = 0.5  # on revoke, for records that are on their way


class Reader(Protocol):
    """A source, as a lane uses it."""

    def poll(self, timeout_s: float) -> list[RawMessage]: ...

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


class ChunkLane:
    """Takes chunks to their partitions; partitions come and go with the assignment."""

    def __init__(
        self, tools: LaneTools, surroundings: Surroundings, backpressure: Backpressure
    ) -> None:
        self.partitions: dict[int, Partition] = {}
        self.source: Reader | None = None  # set once the source, which calls back here, exists
        self._tools = tools
        self._surroundings = surroundings
        self._backpressure = backpressure
        self._committer = Committer(
            self._send_commit, tools.counters, tools.now, tools.commit_interval_s
        )
        self._next_tick = 0.0

    # -- the loop -----------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> int:
        """Read and route what is there; returns the number of messages."""
        if self.source is None:
            return 0
        messages = self.source.poll(timeout_s)
        for raw in messages:
            partition = self.partitions.get(raw.partition)
            # A message fetched before a revocation may still be in the batch.
            if partition is not None and partition.alive:
                partition.receive(raw)
        return len(messages)

    def tick(self, held_s: Callable[[], dict[int, float]], engine_has_work: bool) -> None:
        """Time-outs, backpressure and commits, as far as they are due."""
        now = self._tools.now()
        if now >= self._next_tick:
            self._next_tick = now + TICK_INTERVAL_S
            for partition in self.partitions.values():
                partition.tick()
            self._press(held_s(), engine_has_work)
        self._committer.tick()

    def close(self) -> None:
        """Hand over all partitions and leave the group."""
        if self.source is not None:
            self.source.close()
            self.source = None

    # -- the source's calls -------------------------------------------------------------------

    def assigned(self, starts: Sequence[Start]) -> None:
        topic_id = self._tools.topic_id() if starts else ""
        for start in starts:
            place = Place(topic_id, start.partition, start.offset)
            partition = Partition(place, self._surroundings, self._restored(start, place))
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

    def end_reached(self, partition: int) -> None:
        owned = self.partitions.get(partition)
        if owned is not None:
            owned.end_reached()

    def commit_answered(self, partition: int, result: CommitResult) -> None:
        self._committer.answered(partition, result)
        owned = self.partitions.get(partition)
        if result is CommitResult.LOST and owned is not None and owned.alive:
            # Somebody else may work on it by now; the group will tell us soon.
            owned.drop()

    # -- inside -------------------------------------------------------------------------------

    def _leave(self, leaving: Sequence[Partition], event: str) -> None:
        for partition in leaving:
            if partition.alive:
                partition.drop()
            self._committer.end(partition)
            self._backpressure.forget(partition.number)
            self._tools.counters.forget(partition.number)
            del self.partitions[partition.number]
        self._tools.counters.rebalance(event, len(self.partitions))
        logger.info("%s %s", event, [partition.number for partition in leaving])

    def _restored(self, start: Start, place: Place) -> SessionMap | None:
        if start.metadata is None:
            return None
        try:
            contents, _ = decode_metadata(start.metadata, *place)
        except MapError as error:
            logger.warning(
                "partition %d: the session map is ignored, all is replayed: %s",
                start.partition,
                error.reason,
            )
            self._tools.counters.map_ignored()
            return None
        return contents

    def _press(self, held_s: dict[int, float], engine_has_work: bool) -> None:
        if self.source is None:
            return
        wanted = self._backpressure.update(held_s, engine_has_work)
        paused = self.source.paused
        self.source.pause([n for n in sorted(wanted - paused) if n in self.partitions])
        self.source.resume(sorted(paused - wanted))
        for number in wanted:
            if number in self.partitions:
                # What comes after the pause is not known: no time-out may run.
                self.partitions[number].at_end_since = None

    def _send_commit(self, partition: int, offset: int, metadata: str) -> None:
        if self.source is not None:
            self.source.commit(partition, offset, metadata)
