"""Records that wait for a transaction, and those that one has taken.

Closing a batch tells the senders that its records are delivered. That is a promise: whoever owns
a record never hears of a failure. Either a transaction with it is committed in the end, or the
memory of its partition is dropped and an heir begins from the commit before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from worker.messages import Kind, OutRecord

MOST_RECORDS = 2_000  # of one transaction


class Tenure:
    """One assignment of a partition: what it sends counts while it lasts."""

    def __init__(self, number: int, outbox: TransactionOutbox) -> None:
        self.number = number
        self.alive = True
        self._outbox = outbox

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        """Publish a record; `on_ack` runs once a transaction has taken it."""
        self._outbox.send(self, record, on_ack)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record with its sender."""

    tenure: Tenure
    record: OutRecord
    on_ack: Callable[[], None] | None


class TransactionOutbox:
    """The queue of a lane, and its batch: what counts as delivered and is not committed yet."""

    def __init__(self, send_partial: Callable[[OutRecord], None]) -> None:
        """`send_partial` sends a record at once, outside of any transaction."""
        self._send_partial = send_partial
        self._tenures: dict[int, Tenure] = {}
        self._queue: deque[Outgoing] = deque()
        self.batch: list[Outgoing] = []

    @property
    def waiting(self) -> int:
        """Records that no transaction has taken."""
        return len(self._queue)

    @property
    def touched(self) -> frozenset[int]:
        """Partitions that the batch has records of."""
        return frozenset(outgoing.tenure.number for outgoing in self.batch)

    def open(self, number: int) -> Tenure:
        """Where a partition that was just assigned sends its records."""
        self.end(number)
        tenure = self._tenures[number] = Tenure(number, self)
        return tenure

    def end(self, number: int) -> None:
        """Send nothing more of a partition."""
        tenure = self._tenures.pop(number, None)
        if tenure is not None:
            tenure.alive = False
            self._queue = deque(o for o in self._queue if o.tenure.alive)

    def send(self, tenure: Tenure, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        """Queue a record for a transaction; a partial goes at once."""
        if record.kind is Kind.PARTIAL:
            self._send_partial(record)
        elif tenure.alive:
            self._queue.append(Outgoing(tenure, record, on_ack))

    def gather(self) -> None:
        """Move records from the queue to a new batch and tell their senders.

        What they send in turn joins the batch, right behind what caused it. A map tells of all
        events of a message or of none: they follow each other and stay together.
        """
        self.batch = []
        caused = 0  # records at the head of the queue
        while self._queue and (caused or len(self.batch) < MOST_RECORDS or self._is_event_next):
            outgoing = self._queue.popleft()
            caused = max(0, caused - 1)
            self.batch.append(outgoing)
            if outgoing.on_ack is not None:
                behind, self._queue = self._queue, deque()
                outgoing.on_ack()
                caused += len(self._queue)
                self._queue += behind

    @property
    def _is_event_next(self) -> bool:
        return self._queue[0].record.kind is Kind.EVENT

    def forget_the_dead(self) -> None:
        """Take out of the batch what comes from partitions that are not ours any more."""
        self.batch = [outgoing for outgoing in self.batch if outgoing.tenure.alive]

    def replace(self, numbers: Iterable[int], smaller: Callable[[OutRecord], OutRecord]) -> None:
        """Send something else for records of the batch, by their numbers."""
        for number in numbers:
            outgoing = self.batch[number]
            record = smaller(outgoing.record)
            self.batch[number] = Outgoing(outgoing.tenure, record, outgoing.on_ack)
