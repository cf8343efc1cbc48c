"""Lanes that deliver exactly once, a group that fences them, and transactions on command."""

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
from worker.lane_tools import LaneTools
from worker.messages import Kind, OutRecord, RawMessage
from worker.producer import smaller
from worker.transaction_commits import TransactionTools
from worker.transactions import Answer, Outcome, Transaction

Deaf = Callable[[float], Answer | None]


class TransactionCounts(LaneCounts):
    """Counters of a lane that delivers exactly once."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[str] = []
        self.sent: list[Kind] = []
        self.errors: list[Kind] = []

    def transaction(self, outcome: str, duration_s: float) -> None:
        assert duration_s >= 0
        self.outcomes.append(outcome)

    def produced(self, kind: Kind) -> None:
        self.sent.append(kind)

    def produce_error(self, kind: Kind) -> None:
        self.errors.append(kind)


class FakePort:
    """Takes a transaction; whoever holds the other end decides what becomes of it."""

    def __init__(self) -> None:
        self.submitted: list[Transaction] = []
        self.in_flight: Transaction | None = None
        self.answers: list[Answer] = []
        self.when_waited_for: Deaf = lambda _timeout_s: None
        self.closed = False

    def submit(self, transaction: Transaction) -> None:
        assert self.in_flight is None
        self.submitted.append(transaction)
        self.in_flight = transaction

    def answer(self, timeout_s: float) -> Answer | None:
        if timeout_s and not self.answers:
            return self.when_waited_for(timeout_s)
        return self.answers.pop(0) if self.answers else None

    def close(self) -> None:
        self.closed = True


class Owner(OwnedLane):
    """One worker with the partition, as long as it believes so."""

    def __init__(self, number: int, committed: Committed | None, log: list[RawMessage]) -> None:
        self.clock, self.counts, self.port = Clock(), TransactionCounts(), FakePort()
        self.partials: list[OutRecord] = []
        transactions = TransactionTools(
            port=self.port,
            send_partial=self.partials.append,
            settled=lambda: None,
            counters=self.counts,
            now=self.clock,
            interval_s=0.1,
            commit_interval_s=1.0,
            smaller=smaller,
        )
        tools = LaneTools(
            topic_id=lambda: TOPIC_ID,
            states=FakeStates(),
            flush=lambda _timeout_s: None,
            counters=self.counts,
            now=self.clock,
            commit_interval_s=1.0,
            transactions=transactions,
        )
        super().__init__(tools, log, committed, Outbox(), number)

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.now += seconds
        self.lane.tick(dict, True)


class TransactionDesk:
    """One owner of a partition after another, and zombies; log and commits outlive them.

    The group knows one generation. A transaction counts if it names that one when its positions
    arrive; an heir begins when no transaction is pending.
    """

    def __init__(self, log: list[RawMessage], rng: random.Random) -> None:
        self.log, self.rng = log, rng
        self.visible: list[OutRecord] = []
        self.committed: Committed | None = None
        self.generation = 0
        self.zombies: list[Owner] = []
        self.owner = self._next()

    def _next(self) -> Owner:
        self.generation += 1
        owner = Owner(self.generation, self.committed, self.log)
        owner.port.when_waited_for = lambda _timeout_s: self.decided(owner)
        return owner

    def broker(self, owner: Owner) -> None:
        """A transaction on its way comes to its end, if there is one."""
        answer = self.decided(owner)
        if answer is not None:
            owner.port.answers.append(answer)

    def decided(self, owner: Owner) -> Answer | None:
        """What becomes of the transaction that is on its way."""
        transaction, owner.port.in_flight = owner.port.in_flight, None
        if transaction is None:
            return None
        if transaction.member != self.generation:
            return Answer(self.rng.choice([Outcome.REFUSED, Outcome.EVICTED, Outcome.ABORTED]))
        if self.rng.random() < 0.3:
            return Answer(self.rng.choice([Outcome.ABORTED, Outcome.REFUSED]))
        self._apply(transaction)
        return Answer(Outcome.COMMITTED)

    def kill(self) -> None:
        """The owner dies; what was on its way may come through before an heir begins."""
        self._finish_or_not(self.owner)
        self.owner = self._next()

    def freeze(self) -> None:
        """The owner stops for so long that the group gives its partition to another one."""
        self._finish_or_not(self.owner)
        self.zombies.append(self.owner)
        self.owner = self._next()

    def thaw(self) -> None:
        """A frozen owner goes on, and hears sooner or later that it is none."""
        if not self.zombies:
            return
        zombie = self.rng.choice(self.zombies)
        move = self.rng.random()
        if move < 0.3:
            zombie.deliver(3)
        elif move < 0.5:
            zombie.speech.step()
        elif move < 0.7:
            zombie.tick()
        elif move < 0.9:
            self.broker(zombie)
        else:
            self.zombies.remove(zombie)
            if self.rng.random() < 0.5:
                zombie.lane.lost([0])
            else:
                zombie.lane.revoked([0])  # the client may take a loss for a revocation
            for _ in range(3):
                zombie.tick()
                self.broker(zombie)
            zombie.tick()

    def hand_over(self) -> None:
        """The owner leaves in order: its transactions have ended when it has."""
        self.owner.lane.revoked([0])
        assert self.owner.port.in_flight is None
        self.owner = self._next()

    def settle(self) -> None:
        """Everything that can happen without another death happens."""
        while self.zombies:
            self.thaw()
        for _ in range(60):
            self.owner.deliver(len(self.log))
            self.owner.speech.step()
            self.owner.tick()
            self.broker(self.owner)

    def said(self, kind: Kind) -> dict[str, set[str]]:
        return contents(self.visible, kind)

    def _finish_or_not(self, owner: Owner) -> None:
        """An owner stops with a transaction on its way: it is committed, or never will be."""
        transaction = owner.port.in_flight
        if transaction is None:
            return
        if self.rng.random() < 0.5:
            self._apply(transaction)
            owner.port.answers.append(Answer(Outcome.COMMITTED))
        else:
            outcome = self.rng.choice([Outcome.ABORTED, Outcome.REFUSED, Outcome.EVICTED])
            owner.port.answers.append(Answer(outcome))
        owner.port.in_flight = None

    def _apply(self, transaction: Transaction) -> None:
        assert transaction.positions
        for position in transaction.positions:
            place = position.place
            assert self.committed is None or place.committed_offset >= self.committed.offset
            self.committed = Committed(place.committed_offset, position.metadata)
        self.visible += transaction.records
