"""The lane of live calls: its partitions, their time-outs and the backpressure on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from worker.backpressure import Backpressure
from worker.behind_cuts import waiting_s
from worker.lane import Lane
from worker.lane_tools import LaneTools
from worker.loss import Loss
from worker.metadata import Place
from worker.partition import Partition, Surroundings
from worker.session_map_codec import MAGIC, decode_metadata

TICK_INTERVAL_S = 0.1


class ChunkLane(Lane[Partition]):
    """Takes chunks to their partitions; partitions come and go with the assignment."""

    magic = MAGIC

    def __init__(
        self,
        tools: LaneTools,
        surroundings: Surroundings,
        backpressure: Backpressure,
        in_contact: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(tools)
        self._surroundings = surroundings
        self._backpressure = backpressure
        self._behind_cuts = backpressure.twin()
        self._in_contact = in_contact  # with the brokers of the partitions
        self._next_tick = 0.0

    def poll(self, timeout_s: float) -> int:
        """Read and route what is there; returns the number of messages."""
        received = self._receive(timeout_s)
        in_contact = self._in_contact()
        for partition in self.partitions.values():
            if in_contact:
                partition.polled()
            else:
                partition.cut_off()
        return received

    def tick(self, held_s: Callable[[], dict[int, float]], engine_has_work: bool) -> None:
        """Time-outs, backpressure and commits, as far as they are due."""
        now = self._tools.now()
        if now >= self._next_tick:
            self._next_tick = now + TICK_INTERVAL_S
            for partition in self.partitions.values():
                partition.tick()
            self._press(held_s(), engine_has_work)
        self._committer.tick()

    def _open(self, place: Place, metadata: str | None) -> Partition:
        contents, _ = decode_metadata(metadata, *place)
        shared = self._surroundings
        outbox = self._outbox_of(place.partition) or shared.outbox
        return Partition(place, replace(shared, outbox=outbox), contents)

    def _tell_loss(self, partition: Partition, loss: Loss) -> None:
        partition.publish(partition.records.lost(loss), None)

    def _closed(self, partition: Partition) -> None:
        self._backpressure.forget(partition.number)
        self._behind_cuts.forget(partition.number)

    def _press(self, held_s: dict[int, float], engine_has_work: bool) -> None:
        if self.source is None:
            return
        for_commits_s = {n: waiting_s(partition) for n, partition in self.partitions.items()}
        wanted = (
            self._backpressure.update(held_s, engine_has_work)
            | self._behind_cuts.update(for_commits_s, any(for_commits_s.values()))
            | self.waiting
        )
        paused = self.source.paused
        self.source.pause([n for n in sorted(wanted - paused) if n in self.partitions])
        self.source.resume(sorted(paused - wanted))
        for number in wanted:
            if number in self.partitions:
                self.partitions[number].paused()
