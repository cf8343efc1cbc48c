"""One transaction after the other: records, positions, commit, and what may go wrong.

What the brokers refuse is aborted. A producer that is dead, or was fenced, is replaced by one of
the same name, whose start ends whatever its predecessor left open; if that was a commit, the
group's committed positions tell whether it came through. So every outcome is certain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from worker.messages import Kind
from worker.metadata import MAX_CHARS
from worker.state_reference import encode_reference, reference_to
from worker.state_topic import state_record
from worker.transaction_client import (
    PAUSE_S,
    Died,
    Pause,
    Problem,
    Refused,
    Report,
    TransactionalProducer,
    TransactionClient,
)
from worker.transactions import Answer, Outcome, Position, Transaction

logger = logging.getLogger(__name__)

MORTAL_S = 60.0  # a producer that dies again so soon, with nothing committed, will not live

_OUTCOMES = {
    KafkaError.ILLEGAL_GENERATION: Outcome.REFUSED,
    KafkaError.STALE_MEMBER_EPOCH: Outcome.REFUSED,
    KafkaError.UNKNOWN_MEMBER_ID: Outcome.EVICTED,
    KafkaError.FENCED_MEMBER_EPOCH: Outcome.EVICTED,
    KafkaError.FENCED_INSTANCE_ID: Outcome.FATAL,
}


class TransactionState(Enum):
    """Where the producer is."""

    NEW = "new"  # what its predecessor left may be open still
    READY = "ready"
    OPEN = "open"  # takes records and positions
    ENDING = "ending"  # a commit was asked for
    ABORTING = "aborting"
    DEAD = "dead"


EDGES = {
    TransactionState.NEW: {TransactionState.READY},
    TransactionState.READY: {TransactionState.OPEN, TransactionState.DEAD},
    TransactionState.OPEN: {
        *(TransactionState.ENDING, TransactionState.ABORTING, TransactionState.DEAD),
    },
    TransactionState.ENDING: {
        *(TransactionState.READY, TransactionState.ABORTING, TransactionState.DEAD),
    },
    TransactionState.ABORTING: {TransactionState.READY, TransactionState.DEAD},
    TransactionState.DEAD: {TransactionState.NEW},
}

_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # by an abort, whatever its reason

Committed = Mapping[int, tuple[int, str]]  # offset and metadata by partition


@dataclass(frozen=True, slots=True)
class TransactorTools:
    """What transactions are carried out with."""

    make_producer: Callable[[], TransactionalProducer]
    committed: Callable[[Sequence[int]], Committed]  # waits for pending ones; KafkaException
    group: str
    topic: str  # that is read
    topics: Mapping[Kind, str]  # that are written
    now: Callable[[], float]
    pause: Pause
    max_chars: int = MAX_CHARS


@dataclass(slots=True)
class _Reports:
    """What the delivery reports of one transaction say."""

    too_large: set[int] = field(default_factory=set)  # numbers of records
    places: dict[int, tuple[int, int]] = field(default_factory=dict)  # of state records
    failure: KafkaError | None = None  # of a state record
    refused: str | None = None  # what was said of the first record that was not taken

    def on_record(self, number: int, topic: str) -> Report:
        def report(error: KafkaError | None, _message: Message | None) -> None:
            if error is None or error.code() in _PURGED:
                return
            self.refused = self.refused or f"a record to {topic}: {error.str()}"
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self.too_large.add(number)

        return report

    def on_state(self, partition: int, topic: str) -> Report:
        def report(error: KafkaError | None, message: Message | None) -> None:
            if error is not None or message is None:
                self.failure = error
                if error is not None:
                    self.refused = self.refused or f"a record to {topic}: {error.str()}"
                return
            where, offset = message.partition(), message.offset()
            assert where is not None
            assert offset is not None  # what was delivered lies somewhere
            self.places[partition] = (where, offset)

        return report


class Transactor:
    """Carries out the transactions of one producer name; its calls block, or raise Left."""

    def __init__(self, tools: TransactorTools) -> None:
        self.state = TransactionState.NEW
        self._tools = tools
        self._client: TransactionClient | None = None
        self._died_at = float("-inf")
        self._commit_asked = False  # for the transaction at hand
        self._sent: dict[int, tuple[int, str]] = {}  # offset and metadata, by partition

    def move_to(self, state: TransactionState) -> None:
        """The only writer of `state`; raises RuntimeError on an edge that is not in the table."""
        if state not in EDGES[self.state]:
            raise RuntimeError(f"transaction: {self.state} -> {state}")
        self.state = state

    def start(self) -> Answer | None:
        """End what a predecessor of the same name left open; an answer if that cannot be."""
        tools = self._tools
        try:
            self._client = TransactionClient(tools.make_producer(), tools.pause)
        except Problem as problem:
            return Answer(Outcome.FATAL, str(problem))
        self.move_to(TransactionState.READY)
        return None

    def idle(self) -> None:
        """Serve the client while there is nothing to do."""
        if self._client is not None:
            self._client.serve()

    def run(self, transaction: Transaction) -> Answer:
        """Carry out a transaction; returns once its outcome is certain."""
        if self.state is TransactionState.NEW and (answer := self.start()) is not None:
            return answer
        assert self._client is not None
        reports = _Reports()
        try:
            try:
                return self._carry_out(self._client, transaction, reports)
            except Refused as problem:
                return self._aborted(self._client, problem.error, transaction, reports)
        except Died as problem:
            return self._recovered(transaction, problem.error)

    def _carry_out(
        self, client: TransactionClient, transaction: Transaction, reports: _Reports
    ) -> Answer:
        self._commit_asked = False
        self.move_to(TransactionState.OPEN)
        client.begin()
        for number, record in enumerate(transaction.records):
            topic = self._tools.topics[record.kind]
            client.produce(topic, record, reports.on_record(number, topic))
        self._sent = self._described(client, transaction.positions, reports)
        client.send_positions(
            [TopicPartition(self._tools.topic, n, *sent) for n, sent in self._sent.items()],
            transaction.member,
        )
        self.move_to(TransactionState.ENDING)
        self._commit_asked = True
        client.commit()
        self.move_to(TransactionState.READY)
        self._died_at = float("-inf")
        return Answer(Outcome.COMMITTED)

    def _aborted(
        self,
        client: TransactionClient,
        error: KafkaError,
        transaction: Transaction,
        reports: _Reports,
    ) -> Answer:
        self.move_to(TransactionState.ABORTING)
        client.abort()
        self.move_to(TransactionState.READY)
        if self._came_through(transaction.positions):
            return Answer(Outcome.COMMITTED)
        outcome = _OUTCOMES.get(error.code(), Outcome.ABORTED)
        return Answer(outcome, reports.refused or error.str(), frozenset(reports.too_large))

    def _recovered(self, transaction: Transaction, error: KafkaError) -> Answer:
        """Replace the producer; what became of the transaction of the dead one."""
        self.move_to(TransactionState.DEAD)
        now = self._tools.now()
        if now - self._died_at < MORTAL_S:
            return Answer(Outcome.FATAL, error.str())
        self._died_at = now
        logger.error("the transactional producer is replaced: %s", error.str())
        self.move_to(TransactionState.NEW)
        if (answer := self.start()) is not None:
            return answer
        if self._came_through(transaction.positions):
            return Answer(Outcome.COMMITTED)
        return Answer(Outcome.ABORTED, error.str())

    def _came_through(self, sent: Sequence[Position]) -> bool:
        """Whether a commit that was asked for holds: the group is at a position of it.

        Positions that did not move prove nothing; one that another owner has moved since proves
        nothing against it.
        """
        assert self._client is not None
        if not self._commit_asked:
            return False
        moved = [position.place.partition for position in sent if position.moved]
        while True:
            try:
                found = self._tools.committed(moved)
            except KafkaException as error:
                logger.warning("asked again what is committed: %s", error.args[0].str())
                self._client.wait()
            else:
                return any(found.get(number) == self._sent[number] for number in moved)

    def _described(
        self, client: TransactionClient, positions: Sequence[Position], reports: _Reports
    ) -> dict[int, tuple[int, str]]:
        """Offset and metadata by partition; maps that do not fit are written before."""
        described = {p.place.partition: (p.place.committed_offset, p.metadata) for p in positions}
        long = [p for p in positions if len(p.metadata) > self._tools.max_chars]
        for position in long:
            record = state_record(self._tools.group, position.place, position.metadata)
            topic = self._tools.topics[Kind.STATE]
            client.produce(topic, record, reports.on_state(position.place.partition, topic))
        while reports.failure is None and len(reports.places) < len(long):
            client.serve(PAUSE_S)
        if reports.failure is not None:
            raise Refused(reports.failure)
        for position in long:
            place = position.place
            reference = reference_to(position.metadata.encode(), *reports.places[place.partition])
            named = encode_reference(reference, place, position.start_counter)
            described[place.partition] = (place.committed_offset, named)
        return described
