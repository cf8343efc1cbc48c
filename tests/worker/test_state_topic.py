"""Maps go to the state topic under the name of their partition and come back as they went."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from worker.messages import Kind, OutRecord
from worker.metadata import Place
from worker.state_reference import StateReference, reference_to
from worker.state_topic import StateTopic

PLACE = Place("VZ5a", 3, 17)


class Records:
    """A producer whose deliveries the test reports."""

    def __init__(self) -> None:
        self.sent: list[tuple[OutRecord, Callable[[tuple[int, int] | None], None]]] = []

    def send_once(
        self, record: OutRecord, on_placed: Callable[[tuple[int, int] | None], None]
    ) -> None:
        self.sent.append((record, on_placed))


class Reads:
    """A reader that the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[StateReference, Callable[[bytes | None], None]]] = []
        self.calls: list[str] = []

    def read(self, reference: StateReference, on_found: Callable[[bytes | None], None]) -> Reads:
        self.asked.append((reference, on_found))
        return self

    def cancel(self) -> None:
        self.calls.append("cancel")

    def poll(self) -> None:
        self.calls.append("poll")

    def close(self) -> None:
        self.calls.append("close")


def test_a_map_has_the_key_of_its_partition_and_its_place_is_told() -> None:
    records = Records()
    told: list[StateReference | None] = []
    StateTopic("g", records, Reads()).write(PLACE, "oasr1:AB", told.append)

    ((record, placed),) = records.sent
    assert record == OutRecord(Kind.STATE, b"g:VZ5a:3", b"oasr1:AB", ())
    placed((5, 9))
    assert told == [reference_to(b"oasr1:AB", 5, 9)]


def test_a_map_that_was_not_delivered_has_no_place() -> None:
    records = Records()
    told: list[StateReference | None] = []
    StateTopic("g", records, Reads()).write(PLACE, "oasr1:AB", told.append)

    records.sent[0][1](None)

    assert told == [None]


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"oasr1:AB", "oasr1:AB"), (None, None), (b"\xff", "\N{REPLACEMENT CHARACTER}")],
)
def test_what_is_found_is_text(value: bytes | None, text: str | None) -> None:
    reads = Reads()
    told: list[str | None] = []
    state = StateTopic("g", Records(), reads)
    inquiry = state.read(StateReference(0, 1, 2), told.append)

    reads.asked[0][1](value)

    assert told == [text]
    inquiry.cancel()
    state.poll()
    state.close()
    assert reads.calls == ["cancel", "poll", "close"]
