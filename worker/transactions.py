"""A transaction as plain data, and who carries it out.

Finals, events and dead letters of a lane go out in one transaction with the offset and the map of
every partition that they come from, so that none of them escapes the group's fencing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from worker.messages import OutRecord
from worker.metadata import Place


class Outcome(Enum):
    """What became of a transaction; only COMMITTED ones are visible."""

    COMMITTED = "committed"
    ABORTED = "aborted"  # send it again
    REFUSED = "refused"  # aborted: the group is in another generation than it names
    EVICTED = "evicted"  # aborted: the group does not know this member any more
    FATAL = "fatal"  # the process has to be replaced


@dataclass(frozen=True, slots=True)
class Position:
    """What a transaction commits on one partition."""

    place: Place
    metadata: str  # of any length
    start_counter: int
    moved: bool  # another one than was committed before, so that reading it proves something


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records with the positions that count exactly these as done."""

    records: tuple[OutRecord, ...]
    positions: tuple[Position, ...]
    member: object  # the client's proof of membership, as of now


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the transaction that was submitted last."""

    outcome: Outcome
    reason: str = ""
    too_large: frozenset[int] = frozenset()  # numbers of records that no broker takes


class TransactionPort(Protocol):
    """Carries out one transaction after the other, while the loop goes on."""

    def submit(self, transaction: Transaction) -> None:
        """Begin with a transaction; the one before must have been answered."""

    def answer(self, timeout_s: float) -> Answer | None:
        """What became of it; waits at most `timeout_s`, None if that is not known by then."""

    def close(self) -> None:
        """Nothing more will be submitted."""
