"""What both lanes do alike: partitions come and go, and commits follow them.

A partition is not read before its map is there, which may lie on the state topic, and before a
commit has counted the new owner.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, TypeVar

from worker.assignment import Start
from worker.commits import Commit, CommitResult, Committable, Committer
from worker.lane_tools import LaneTools, Outbox, Reader
from worker.loss import Loss
from worker.messages import RawMessage
from worker.metadata import (
    MOST_STARTS,
    NO_MAP,
    Place,
    recounted,
    seal,
    start_counter_of,
)
from worker.producer import FatalClientError
from worker.session_map import MapError
from worker.state_reference import StateReference, decode_reference
from worker.state_topic import Inquiry
from worker.transaction_commits import TransactionCommitter

logger = logging.getLogger(__name__)

GIVEN_UP_S = 60.0  # within which the group takes a partition away that a commit told lost
ACK_WAIT_S = 0.5  # on revoke, for records that are on their way


class Owned(Committable, Protocol):
    """A partition for the time of its assignment."""

    def receive(self, raw: RawMessage) -> None:
        """Take the next message."""

    def drop(self) -> None:
        """The assignment is over: leave the engine, publish nothing more."""

    def end_reached(self) -> None:
        """Everything in the log has been received."""


@dataclass(slots=True)
class _Opening:
    """A partition of ours whose map is looked for; it is not read meanwhile."""

    place: Place
    metadata: str  # names the record in which the map lies
    inquiry: Inquiry | None = None
    early: list[RawMessage] = field(default_factory=list)  # came though it is paused


P = TypeVar("P", bound=Owned)


class Lane(ABC, Generic[P]):
    """The partitions of one topic that this worker owns."""

    magic: ClassVar[str]  # of its maps

    def __init__(self, tools: LaneTools) -> None:
        self.partitions: dict[int, P] = {}
        self.source: Reader | None = None  # set once the source, which calls back here, exists
        self._tools = tools
        self._openings: dict[int, _Opening] = {}
        self._losses: dict[int, Loss] = {}  # what the log lost, until that is told
        self._given_up: dict[int, float] = {}  # partitions that a commit told lost, since when
        self._committer = self._make_committer()

    @abstractmethod
    def _open(self, place: Place, metadata: str | None) -> P:
        """A partition that begins at a commit; raises MapError for metadata that is not ours."""

    @abstractmethod
    def _tell_loss(self, partition: P, loss: Loss) -> None:
        """Publish that messages of a partition are lost."""

    def _closed(self, partition: P) -> None:
        """The partition has just been dropped."""

    def close(self) -> None:
        """Hand over all partitions and leave the group."""
        if self.source is not None:
            self.source.close()
            self.source = None
            self._tools.states.close()
            if self._tools.transactions is not None:
                self._tools.transactions.port.close()

    def child_died(self) -> None:
        """A child process died over partitions that run apart."""
        self._committer.not_healthy()

    @property
    def is_read(self) -> bool:
        """Whether this worker is a member of the topic's group."""
        return self.source is not None

    @property
    def waiting(self) -> frozenset[int]:
        """Partitions that must not be read yet."""
        return self._committer.not_begun | self._openings.keys()

    def _receive(self, timeout_s: float) -> int:
        """Read and route what is there; returns the number of messages."""
        if self.source is None:
            return 0
        self._tools.states.poll()
        self._check_given_up()
        batch = self.source.poll(timeout_s)
        for raw in batch.messages:
            partition = self.partitions.get(raw.partition)
            # A message fetched before a revocation may still be in the batch.
            if partition is not None and partition.alive:
                partition.receive(raw)
            elif raw.partition in self._openings:
                self._openings[raw.partition].early.append(raw)
        for number in batch.ended:
            if number in self.partitions:
                self.partitions[number].end_reached()
        return len(batch.messages)

    # -- the source's calls -------------------------------------------------------------------

    def assigned(self, starts: Sequence[Start]) -> None:
        topic_id = self._tools.topic_id() if starts else ""
        for start in starts:
            self._note_loss(start)
            place = Place(topic_id, start.partition, start.offset)
            try:
                named = decode_reference(start.metadata, place)
            except MapError as error:
                self._ignore_map(place, error.reason)
                named = None
                start = replace(start, metadata=None)
            if named is None:
                self._begin(place, start.metadata, start.metadata)
            else:
                self._look_for(place, named[0], start.metadata or "")
        if self.source is not None:
            self.source.pause([start.partition for start in starts])
        self._tools.counters.rebalance("assigned", self._owned)
        logger.info("assigned %s", [start.partition for start in starts])

    def revoked(self, partitions: Sequence[int]) -> None:
        leaving = [self.partitions[n] for n in partitions if n in self.partitions]
        if leaving:
            self._tools.flush(ACK_WAIT_S)
        self._committer.hand_over(leaving)
        self._leave(partitions, "revoked")

    def lost(self, partitions: Sequence[int]) -> None:
        self._leave(partitions, "lost")

    def commit_answered(self, partition: int, result: CommitResult) -> None:
        if self._committer.answered(partition, result):
            self._heed(partition, result)

    # -- inside -------------------------------------------------------------------------------

    def _make_committer(self) -> Committer | TransactionCommitter:
        tools = self._tools
        if tools.transactions is not None:
            return TransactionCommitter(tools.transactions, self._member, self._heed)
        return Committer(
            self._send_commit,
            tools.states.write,
            tools.counters,
            tools.now,
            tools.commit_interval_s,
            tools.max_chars,
        )

    def _member(self) -> object | None:
        return None if self.source is None else self.source.member()

    def _outbox_of(self, number: int) -> Outbox | None:
        """Where a partition that was just assigned sends its records; None: where all do."""
        committer = self._committer
        return committer.outbox(number) if isinstance(committer, TransactionCommitter) else None

    def _heed(self, partition: int, result: CommitResult) -> None:
        """What became of a commit of a partition that we have now."""
        owned = self.partitions.get(partition)
        if result is CommitResult.LOST and owned is not None and owned.alive:
            # Somebody else may work on it by now; the group will tell us soon.
            self._drop(owned)
            self._given_up[partition] = self._tools.now()

    def _check_given_up(self) -> None:
        """End the process if a partition that we gave up is still ours: nobody would read it."""
        now = self._tools.now()
        for number, since in self._given_up.items():
            if now - since >= GIVEN_UP_S:
                raise FatalClientError(
                    f"partition {number}: a commit said that it is not ours, the group did not"
                )

    @property
    def _owned(self) -> int:
        return len(self.partitions) + len(self._openings)

    def _look_for(self, place: Place, reference: StateReference, metadata: str) -> None:
        """Do not read the partition until its map is there, or is proved gone."""
        opening = _Opening(place, metadata)
        self._openings[place.partition] = opening
        opening.inquiry = self._tools.states.read(
            reference, lambda text: self._found(opening, text)
        )

    def _found(self, opening: _Opening, text: str | None) -> None:
        place = opening.place
        if self._openings.get(place.partition) is not opening:
            return  # it left meanwhile
        del self._openings[place.partition]
        if text is None:
            self._ignore_map(place, "its record on the state topic is gone")
        self._begin(place, text, opening.metadata)
        for raw in opening.early:
            self.partitions[place.partition].receive(raw)

    def _begin(self, place: Place, text: str | None, metadata: str | None) -> None:
        """Work on a partition with the map `text`, which is or lies behind the `metadata`."""
        number = place.partition
        try:
            partition = self._open(place, text)
            starts = min(start_counter_of(metadata, place) + 1, MOST_STARTS) if metadata else 1
        except MapError as error:
            self._ignore_map(place, error.reason)
            partition, starts, text = self._open(place, None), 1, None
        partition.start_counter = starts
        if metadata and text is not None:
            counted = recounted(metadata, place, starts)
        else:
            counted = seal(self.magic, NO_MAP, place, starts)
        self.partitions[number] = partition
        first = Commit(place.committed_offset, counted, lambda: self._begun(number))
        self._committer.begin(partition, first)
        self._tools.counters.starts(number, starts)

    def _begun(self, number: int) -> None:
        """The commit that counts this owner is acknowledged: it may read."""
        loss = self._losses.pop(number, None)
        if loss is not None:
            self._tell_loss(self.partitions[number], loss)
        if self.source is not None:
            self.source.resume([number])

    def _note_loss(self, start: Start) -> None:
        if start.lost_messages and self.source is not None:
            first_offset = start.offset - start.lost_messages
            self._losses[start.partition] = Loss(
                self.source.topic, start.partition, first_offset, start.offset - 1
            )
            self._tools.counters.lost(start.lost_messages)

    def _ignore_map(self, place: Place, reason: str) -> None:
        logger.warning(
            "partition %d: the map of the commit is ignored, all above it is replayed: %s",
            place.partition,
            reason,
        )
        self._tools.counters.map_ignored()

    def _leave(self, numbers: Sequence[int], event: str) -> None:
        for number in numbers:
            opening = self._openings.pop(number, None)
            if opening is not None and opening.inquiry is not None:
                opening.inquiry.cancel()
            self._given_up.pop(number, None)
            self._losses.pop(number, None)
            partition = self.partitions.pop(number, None)
            if partition is not None:
                if partition.alive:
                    self._drop(partition)
                self._committer.end(partition)
                self._tools.counters.forget(number)
        self._tools.counters.rebalance(event, self._owned)
        logger.info("%s %s", event, list(numbers))

    def _drop(self, partition: P) -> None:
        partition.drop()
        self._closed(partition)

    def _send_commit(self, partition: int, offset: int, metadata: str) -> None:
        if self.source is not None:
            self.source.commit(partition, offset, metadata)
