"""Exactly-once delivery as a lane sees it: what to send and commit together, and when.

A batch of records is closed first; the partitions are asked for their maps after that, which so
count exactly these records as done. Batch and maps are one transaction. While it is on its way
nothing else is sent; if it is aborted, the same records go out again with newer maps, but for
those of partitions that are not ours any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from worker.commits import ISOLATED_FROM, Commit, CommitCounters, CommitResult, Committable
from worker.messages import Kind, OutRecord
from worker.producer import FatalClientError
from worker.seldom import Seldom
from worker.transaction_ledger import Ledger
from worker.transaction_outbox import MOST_RECORDS, Tenure, TransactionOutbox
from worker.transactions import Answer, Outcome, Transaction, TransactionPort

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 0.5  # a transaction that was aborted
REFUSED_FOR_S = 10.0  # so long a member that is in the group waits for its new generation at most
REVOKE_S = 2.0  # in which the last transaction of a partition has to end
WAIT_S = 0.1  # at a time: time for which the process is frozen counts as one wait


class Phase(Enum):
    """GATHERING has nothing that counts as sent; AGAIN has what an aborted transaction had."""

    GATHERING = "gathering"
    SENT = "sent"
    AGAIN = "again"


EDGES = {
    Phase.GATHERING: {Phase.SENT},
    Phase.SENT: {Phase.GATHERING, Phase.AGAIN},
    Phase.AGAIN: {Phase.SENT, Phase.GATHERING},
}


class TransactionCounters(CommitCounters, Protocol):
    """What transactions are counted as."""

    def transaction(self, outcome: str, duration_s: float) -> None: ...

    def produced(self, kind: Kind) -> None: ...

    def produce_error(self, kind: Kind) -> None: ...


@dataclass(frozen=True, slots=True)
class TransactionTools:
    """What transactions are made of and when."""

    port: TransactionPort
    send_partial: Callable[[OutRecord], None]
    settled: Callable[[], None]  # everything acknowledged so far is visible now
    counters: TransactionCounters
    now: Callable[[], float]
    interval_s: float  # between transactions while there are records
    commit_interval_s: float  # of a partition that has none
    smaller: Callable[[OutRecord], OutRecord]  # what may be sent of a record that is too large


class TransactionCommitter:
    """Sends and commits in transactions, for the partitions that are assigned now."""

    def __init__(
        self,
        tools: TransactionTools,
        member: Callable[[], object | None],
        answered: Callable[[int, CommitResult], None],
    ) -> None:
        """`answered` hears what became of the commit of a partition that is still ours.

        `member` gives the client's proof that it is in the group, or None where it is not.
        """
        self._tools = tools
        self._member = member
        self._answered = answered
        self._phase = Phase.GATHERING
        self._outbox = TransactionOutbox(tools.send_partial)
        self._ledgers: dict[int, Ledger] = {}
        self._carried: list[tuple[Ledger, Commit]] = []  # what the batch commits
        self._sent_at = float("-inf")
        self._again_at = 0.0
        self._refused_since: float | None = None
        self._seldom = Seldom(tools.now)

    # -- partitions ---------------------------------------------------------------------------

    def outbox(self, number: int) -> Tenure:
        """Where a partition that was just assigned sends its records."""
        return self._outbox.open(number)

    def begin(self, partition: Committable, first: Commit | None = None) -> None:
        """A partition was assigned; nothing else is committed before `first` is acknowledged."""
        self._ledgers[partition.number] = Ledger(partition, first, self._tools.now())

    def not_healthy(self) -> None:
        """What runs apart has died: no partition that runs apart has proved to be healthy."""
        for ledger in self._ledgers.values():
            if ledger.partition.start_counter >= ISOLATED_FROM:
                ledger.begun_at = self._tools.now()

    @property
    def not_begun(self) -> frozenset[int]:
        """Partitions whose first commit is not acknowledged."""
        return frozenset(n for n, ledger in self._ledgers.items() if ledger.first is not None)

    def partitions(self) -> Iterable[Committable]:
        """The partitions that are assigned now."""
        return [ledger.partition for ledger in self._ledgers.values()]

    def end(self, partition: Committable) -> None:
        """A partition is gone: nothing of it is sent or committed any more."""
        ledger = self._ledgers.get(partition.number)
        if ledger is not None and ledger.partition is partition:
            del self._ledgers[partition.number]
            self._outbox.end(partition.number)

    def answered(self, number: int, result: CommitResult) -> bool:
        """Answers come from the port alone: one that comes otherwise is nobody's."""
        del number, result
        return False

    @property
    def unacknowledged(self) -> int:
        """Records that are not visible yet."""
        return self._outbox.waiting + len(self._outbox.batch)

    # -- turns --------------------------------------------------------------------------------

    def tick(self) -> None:
        """Take the answer to the last transaction, and send the next if its time has come."""
        self._take_answer(0)
        if self._phase is not Phase.SENT and self._is_due():
            self._send(())

    def hand_over(self, leaving: Sequence[Committable]) -> None:
        """Commit once more what leaves; its transactions have ended when this returns.

        Raises FatalClientError if one has not within 2 s: the process must not leave it to an
        heir what is still on its way.
        """
        numbers = {partition.number for partition in leaving}
        if not numbers:
            return
        waits = self._await_end(numbers, round(REVOKE_S / WAIT_S))
        if self._phase is not Phase.SENT:
            self._send([p for p in leaving if p.alive])
            self._await_end(numbers, waits)

    # -- inside -------------------------------------------------------------------------------

    def _move_to(self, phase: Phase) -> None:
        if phase not in EDGES[self._phase]:
            raise RuntimeError(f"transactions: {self._phase} -> {phase}")
        self._phase = phase

    def _is_due(self) -> bool:
        now = self._tools.now()
        if self._phase is Phase.AGAIN:
            return now >= self._again_at
        if self._outbox.waiting >= MOST_RECORDS:
            return True
        if self._outbox.waiting and now - self._sent_at >= self._tools.interval_s:
            return True
        interval_s = self._tools.commit_interval_s
        return any(ledger.wants(now, interval_s) for ledger in self._ledgers.values())

    def _send(self, leaving: Sequence[Committable]) -> None:
        """Close a batch, with the maps that count it as done, and hand it to the brokers."""
        member = self._member()
        if member is None:  # out of the group: what is not committed is its heirs' to tell
            return
        now = self._tools.now()
        if self._phase is Phase.AGAIN:
            self._outbox.forget_the_dead()
        else:
            self._outbox.gather()
        self._carried = self._commits(now, {partition.number for partition in leaving})
        positions = tuple(ledger.position(commit) for ledger, commit in self._carried)
        if not positions:
            if self._phase is Phase.AGAIN:
                self._move_to(Phase.GATHERING)
            return
        self._sent_at = now
        self._move_to(Phase.SENT)
        records = tuple(outgoing.record for outgoing in self._outbox.batch)
        self._tools.port.submit(Transaction(records, positions, member))

    def _commits(self, now: float, leaving: set[int]) -> list[tuple[Ledger, Commit]]:
        """Those of all partitions that the batch has records of, and of others that moved."""
        touched = self._outbox.touched
        tools = self._tools
        found = []
        for number, ledger in self._ledgers.items():
            leaves = number in leaving
            if number not in touched:
                if leaves and ledger.first is not None:
                    continue  # an owner that has not begun takes nothing back
                if not leaves and not ledger.wants(now, tools.commit_interval_s):
                    continue
            commit = ledger.prepare(now, leaves, tools.counters)
            if number in touched or not ledger.knows(commit):
                found.append((ledger, commit))
        missing = touched - {ledger.partition.number for ledger, _ in found}
        if missing:
            raise RuntimeError(f"records without a position of partitions {sorted(missing)}")
        return found

    # -- answers ------------------------------------------------------------------------------

    def _await_end(self, numbers: set[int], waits: int) -> int:
        """Wait for the transaction on its way; returns how many waits are left."""
        while self._phase is Phase.SENT and waits:
            waits -= 1
            self._take_answer(WAIT_S)
        carried = {ledger.partition.number for ledger, _ in self._carried}
        if self._phase is Phase.SENT and carried & numbers:
            raise FatalClientError(
                f"a transaction did not end within {REVOKE_S:.0f} s of a revocation"
            )
        return waits

    def _take_answer(self, timeout_s: float) -> None:
        if self._phase is not Phase.SENT:
            return
        answer = self._tools.port.answer(timeout_s)
        if answer is None:
            return
        now = self._tools.now()
        self._tools.counters.transaction(answer.outcome.value, now - self._sent_at)
        if answer.outcome is Outcome.FATAL:
            raise FatalClientError(f"transactions: {answer.reason}")
        if answer.outcome is Outcome.COMMITTED:
            self._committed()
        else:
            self._aborted(answer, now)

    def _committed(self) -> None:
        self._move_to(Phase.GATHERING)
        self._refused_since = None
        for outgoing in self._outbox.batch:
            self._tools.counters.produced(outgoing.record.kind)
        self._outbox.batch = []
        self._tools.settled()
        for ledger, commit in self._carried:
            number = ledger.partition.number
            self._tools.counters.commit(number, CommitResult.DONE.value)
            if self._ledgers.get(number) is ledger:
                ledger.acknowledged(commit, self._tools.now())

    def _aborted(self, answer: Answer, now: float) -> None:
        ending = self._seldom.ending(answer.reason)
        if ending is not None:
            logger.warning("a transaction was aborted: %s%s", answer.reason, ending)
        self._move_to(Phase.AGAIN)
        self._again_at = now + RETRY_AFTER_S
        for number in answer.too_large:
            self._tools.counters.produce_error(self._outbox.batch[number].record.kind)
        self._outbox.replace(answer.too_large, self._tools.smaller)
        for ledger, _ in self._carried:
            # Asked again with whatever goes out next, with records or without.
            ledger.asked_at = float("-inf")
        result = CommitResult.RETRY
        if answer.outcome is Outcome.REFUSED:
            self._refused_since = self._refused_since or now
            if now - self._refused_since >= REFUSED_FOR_S:
                result = CommitResult.LOST
        elif answer.outcome is Outcome.EVICTED:
            result = CommitResult.LOST
        for ledger, _ in self._carried:
            number = ledger.partition.number
            self._tools.counters.commit(number, result.value)
            if self._ledgers.get(number) is ledger:
                if result is CommitResult.LOST:
                    self._outbox.end(number)
                self._answered(number, result)
