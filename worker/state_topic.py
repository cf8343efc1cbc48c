"""The state topic as a lane uses it: maps that do not fit in commit metadata go there and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from worker.messages import Kind, OutRecord
from worker.metadata import Place
from worker.state_reference import StateReference, reference_to

Written = Callable[[StateReference | None], None]
Found = Callable[[str | None], None]


def state_record(group: str, place: Place, text: str) -> OutRecord:
    """The record that holds the map of a commit."""
    key = f"{group}:{place.topic_id}:{place.partition}".encode()
    return OutRecord(Kind.STATE, key, text.encode("ascii"), ())


class Inquiry(Protocol):
    """A record that is looked for."""

    def cancel(self) -> None:
        """Nobody wants the answer any more."""


class Records(Protocol):
    """The durable producer, for records whose place matters."""

    def send_once(
        self, record: OutRecord, on_placed: Callable[[tuple[int, int] | None], None]
    ) -> None:
        """Publish a record; tells its partition and offset, or None if it was not delivered."""


class StateReads(Protocol):
    """The reader of the topic."""

    def read(
        self, reference: StateReference, on_found: Callable[[bytes | None], None]
    ) -> Inquiry: ...

    def poll(self) -> None: ...

    def close(self) -> None: ...


class StateTopic:
    """Writes and finds the maps of one group's partitions."""

    def __init__(self, group: str, records: Records, reads: StateReads) -> None:
        self._group = group
        self._records = records
        self._reads = reads

    def write(self, place: Place, text: str, on_written: Written) -> None:
        """Write the map of a commit; tells the reference, or None if it was not delivered."""
        record = state_record(self._group, place, text)

        def placed(found: tuple[int, int] | None) -> None:
            on_written(None if found is None else reference_to(record.value, *found))

        self._records.send_once(record, placed)

    def read(self, reference: StateReference, on_found: Found) -> Inquiry:
        """Look for a map until it is there; tells None only once it is proved gone."""

        def found(value: bytes | None) -> None:
            on_found(None if value is None else value.decode("ascii", "replace"))

        return self._reads.read(reference, found)

    def poll(self) -> None:
        """Serve what is looked for; never waits."""
        self._reads.poll()

    def close(self) -> None:
        """Look for nothing more."""
        self._reads.close()
