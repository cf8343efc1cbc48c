"""What `sessions list` shows of the maps that a group has committed."""

from __future__ import annotations

import io
from typing import Any

import pytest
from confluent_kafka import KafkaError
from rich.console import Console

from tests.support.consumers import FakeMessage, place
from worker.metadata import NO_MAP, Place, seal
from worker.session_commands import described, table
from worker.session_map import (
    ChannelEntry,
    PendingCut,
    SessionEntry,
    SessionMap,
    StreamEntry,
    key_hash,
)
from worker.session_map_codec import MAGIC, encode_metadata
from worker.session_survey import OpenSession, PartitionSurvey, Survey
from worker.state_reference import encode_reference, reference_to

TOPIC_ID = "id"
NOW_MS = 1_000_000
EOF = KafkaError(KafkaError._PARTITION_EOF)


def entry(
    key: bytes, first_open: int | None, origin: int = 0, pending: PendingCut | None = None
) -> SessionEntry:
    channels = (ChannelEntry(0, 0, segment_index=2), ChannelEntry(1, 0, 3, pending=pending))
    stream = StreamEntry(first_open, 1, 0, 0, 8000, "mulaw", 2, channels)
    named = None if first_open is not None else key
    return SessionEntry(key_hash(key), origin, streams=(stream,), key=named)


class FakeClient:
    """Commits of one partition, and logs of two topics."""

    def __init__(self, committed: int, metadata: str) -> None:
        self.committed_at = place("chunks", 0, committed, metadata=metadata)
        self.logs: dict[tuple[str, int, int], FakeMessage] = {}
        self._next: list[FakeMessage] = []
        self.assigned = 0

    def committed(self, _asked: Any, timeout: float) -> list[Any]:
        assert timeout > 0
        return [self.committed_at]

    def get_watermark_offsets(self, _asked: Any, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return 0, 90

    def assign(self, places: list[Any]) -> None:
        (asked,) = places
        self.assigned += 1
        found = self.logs.get((asked.topic, asked.partition, asked.offset))
        self._next = [found or FakeMessage(asked.partition, 99, EOF, topic=asked.topic)]

    def unassign(self) -> None:
        self._next = []

    def poll(self, _timeout_s: float) -> FakeMessage | None:
        return self._next.pop(0) if self._next else None


def survey(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> Survey:
    monkeypatch.setattr("worker.session_survey.Consumer", lambda _properties: client)
    return Survey({}, "chunks", "state", TOPIC_ID)


def contents() -> SessionMap:
    cut = PendingCut("cut", "idle", 800, 60)
    sessions = (
        entry(b"late", 70, 30),
        entry(b"dormant", None, 20),
        entry(b"first", 50, 10, cut),
    )
    return SessionMap(80, sessions, open_offsets=(75,))


def message(key: bytes, topic: str = "chunks", **more: Any) -> FakeMessage:
    return FakeMessage(0, 50, topic=topic, key=key, **more)


def test_sessions_come_in_the_order_in_which_they_hold_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = FakeClient(50, encode_metadata(contents(), TOPIC_ID, 0, 50, 3))
    client.logs[("chunks", 0, 50)] = message(b"first")

    found = survey(client, monkeypatch)
    (part,) = found.of([0])
    named = found.named(part, 3)

    assert (named.committed, named.end, named.starts, named.messages) == (50, 90, 3, (75,))
    assert [s.key for s in named.sessions] == [b"first", None, b"dormant"]
    assert [s.first_open for s in named.sessions] == [50, 70, None]
    assert [s.pending for s in named.sessions] == ["cut:idle", None, None]
    assert [(s.channels, s.segments) for s in named.sessions] == [(2, 5)] * 3
    assert named.pinned_by == named.sessions[0]


def test_keys_are_read_of_as_many_sessions_as_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient(50, encode_metadata(contents(), TOPIC_ID, 0, 50))
    found = survey(client, monkeypatch)
    (part,) = found.of([0])
    found.named(part, 1)

    assert client.assigned == 1


def test_a_map_on_the_state_topic_is_read_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    text = encode_metadata(contents(), TOPIC_ID, 0, 50)
    metadata = encode_reference(reference_to(text.encode(), 0, 50), Place(TOPIC_ID, 0, 50), 1)
    client = FakeClient(50, metadata)
    found = survey(client, monkeypatch)
    (gone,) = found.of([0])
    client.logs[("state", 0, 50)] = message(b"k", "state", value=text.encode())
    (there,) = found.of([0])

    assert gone.problem == "its record on the state topic cannot be read"
    assert len(there.sessions) == 3


@pytest.mark.parametrize("metadata", ["rubbish", "oasrm1:AAAA"])
def test_a_foreign_map_is_told(monkeypatch: pytest.MonkeyPatch, metadata: str) -> None:
    (part,) = survey(FakeClient(50, metadata), monkeypatch).of([0])

    assert part.problem
    assert part.sessions == ()


def test_a_commit_without_a_map_has_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = seal(MAGIC, NO_MAP, Place(TOPIC_ID, 0, 50), 4)
    (part,) = survey(FakeClient(50, metadata), monkeypatch).of([0])

    assert (part.starts, part.sessions, part.problem) == (4, (), None)


def shown(*parts: PartitionSurvey, most: int = 20) -> list[str]:
    console = Console(file=io.StringIO(), width=160, markup=False)
    console.print(table(parts, most, NOW_MS))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def open_session(key: bytes | None, first_open: int, since_ms: int | None = None) -> OpenSession:
    return OpenSession(0xABC, 3, first_open, 2, 7, None, key, since_ms)


def test_people_see_who_pins_a_partition_and_for_how_long() -> None:
    part = PartitionSurvey(
        4,
        50,
        90,
        1,
        (open_session(b"call [bold]\x1b", 50, NOW_MS - 61_500), open_session(None, 60)),
    )
    _, summary, first, second = shown(part)

    assert summary.split() == ["4", "committed", "50", "of", "90,", "2", "open"]
    assert first.split() == [
        *["call", "[bold]\\x1b", "4-3", "50", "61.5", "2", "7", "pins", "the", "commit"]
    ]
    assert second.split() == ["#000000000abc", "4-3", "60", "2", "7"]


def test_what_is_not_shown_is_counted() -> None:
    part = PartitionSurvey(4, 50, 90, 5, tuple(open_session(None, 50 + n) for n in range(5)), (3,))
    lines = shown(part, most=2)

    assert "5 open, 1 messages of no session, 5 owners began" in lines[1]
    assert lines[-1].split() == ["…", "and", "3", "more"]


def test_programs_get_the_same_as_json() -> None:
    part = PartitionSurvey(4, 50, 90, 1, (open_session(b"call", 50, NOW_MS - 1500),), (55,))

    assert described(part, 20, NOW_MS) == {
        "partition": 4,
        "committed": 50,
        "end": 90,
        "starts": 1,
        "problem": None,
        "open_messages_of_no_session": [55],
        "open_sessions": 1,
        "sessions": [
            {
                "session_id": "call",
                "key_hash": "000000000abc",
                "origin": "4-3",
                "first_open": 50,
                "open_s": 1.5,
                "channels": 2,
                "segments": 7,
                "pending": None,
                "pins": True,
            }
        ],
    }
