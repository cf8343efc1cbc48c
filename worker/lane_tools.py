"""What a lane needs of the rest of the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from worker.commits import CommitCounters
from worker.messages import Batch, OutRecord
from worker.metadata import MAX_CHARS, Place
from worker.state_reference import StateReference
from worker.state_topic import Found, Inquiry, Written
from worker.transaction_commits import TransactionTools


class Reader(Protocol):
    """A source, as a lane uses it."""

    topic: str

    def poll(self, timeout_s: float) -> Batch: ...

    def commit(self, partition: int, offset: int, metadata: str) -> None: ...

    def pause(self, partitions: Sequence[int]) -> None: ...

    def resume(self, partitions: Sequence[int]) -> None: ...

    def close(self) -> None: ...

    def member(self) -> object | None:
        """The client's proof that it is in the group now; None: it is not."""

    @property
    def paused(self) -> frozenset[int]: ...


class Outbox(Protocol):
    """Where records go; `on_ack` runs in the loop once the broker has the record."""

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None: ...


class LaneCounters(CommitCounters, Protocol):
    """What a lane counts."""

    def rebalance(self, event: str, assigned: int) -> None: ...

    def map_ignored(self) -> None: ...

    def lost(self, messages: int) -> None: ...

    def forget(self, partition: int) -> None: ...


class States(Protocol):
    """The state topic, where maps lie that are too long for a commit."""

    def write(self, place: Place, text: str, on_written: Written) -> None: ...

    def read(self, reference: StateReference, on_found: Found) -> Inquiry: ...

    def poll(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LaneTools:
    """What a lane is built from."""

    topic_id: Callable[[], str]
    states: States
    flush: Callable[[float], Any]  # wait for acknowledgements, at most so many seconds
    counters: LaneCounters
    now: Callable[[], float]
    commit_interval_s: float
    max_chars: int = MAX_CHARS  # of metadata that needs no state record
    transactions: TransactionTools | None = None  # for exactly-once delivery
