"""A lane under test: a log, a broker for commits and state records, owners that come and go."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.lanes import Clock, FakeStates, LaneCounts
from tests.support.owned_lane import OwnedLane
from tests.support.partitions import (
    TOPIC_ID,
    Committed,
    Outbox,
    contents,
)
from worker.commits import CommitResult
from worker.lane_tools import LaneTools
from worker.messages import Kind, OutRecord, RawMessage
from worker.session_map import key_hash


class LaneDesk:
    """One owner after another; the log, the commits and the state topic outlive them."""

    def __init__(
        self,
        log: list[RawMessage],
        max_chars: int,
        hash_key: Callable[[bytes], int] = key_hash,
    ) -> None:
        self.log, self.max_chars, self.hash_key = log, max_chars, hash_key
        self.committed: Committed | None = None
        self.state_records: list[str] = []
        self.records: list[OutRecord] = []  # on the topics, of all former owners
        self.clock, self.counts = Clock(), LaneCounts()
        self.by_reference = 0  # commits that named a record
        self._begin()

    def _begin(self) -> None:
        self.states, self.outbox = FakeStates(), Outbox()
        self.states.records = self.state_records
        tools = LaneTools(
            topic_id=lambda: TOPIC_ID,
            states=self.states,
            flush=lambda _timeout_s: None,
            counters=self.counts,
            now=self.clock,
            commit_interval_s=1.0,
            max_chars=self.max_chars,
        )
        self.owned = OwnedLane(tools, self.log, self.committed, self.outbox, hash_key=self.hash_key)
        self.lane, self.reader, self.speech = self.owned.lane, self.owned.reader, self.owned.speech
        self.deliver = self.owned.deliver

    def tick(self) -> None:
        """An interval passes."""
        self.clock.now += 1
        self.lane.tick(dict, True)

    def broker(self, result: CommitResult = CommitResult.DONE) -> None:
        """The broker takes the oldest commit, or refuses it, and says so."""
        if self.reader.commits:
            if result is CommitResult.DONE:
                self._apply(*self.reader.commits[0])
            del self.reader.commits[0]
            self.lane.commit_answered(0, result)

    def write(self, failed: bool = False) -> None:
        if self.states.writing:
            self.states.written(failed)

    def find(self) -> None:
        if self.states.searches:
            self.states.found()

    def take_over(self, rng: random.Random) -> None:
        """The owner dies; what it sent may have reached the broker."""
        if self.reader.commits and rng.random() < 0.5:
            self._apply(*self.reader.commits[0])
        if self.states.writing and rng.random() < 0.5:
            self.state_records.append(self.states.writing[0][1])  # nobody will name it
        self._next_owner()

    def take_over_as_it_is(self) -> None:
        """The owner dies; nothing that it sent reaches the broker any more."""
        self._next_owner()

    def hand_over(self) -> None:
        """The owner leaves in order."""
        assert len(self.reader.commits) <= 1
        self.lane.revoked([0])
        for commit in self.reader.commits:
            self._apply(*commit)
        self._next_owner()

    def settle(self) -> None:
        """Everything that can happen without another death happens."""
        for _ in range(30):
            self.find()
            self.deliver(len(self.log))
            self.speech.step()
            self.outbox.acknowledge()
            self.tick()
            self.write()
            self.broker()

    def said(self, kind: Kind) -> dict[str, set[str]]:
        """Every text that was published under each id."""
        return contents(self.records + self.outbox.on_topic, kind)

    def _apply(self, partition: int, offset: int, metadata: str) -> None:
        assert partition == 0
        assert self.committed is None or offset >= self.committed.offset
        self.committed = Committed(offset, metadata)
        self.by_reference += metadata.startswith("oasrs1:")

    def _next_owner(self) -> None:
        self.records += self.outbox.on_topic
        for partition in self.lane.partitions.values():
            partition.alive = False
        self._begin()
