"""A dead letter as it lies on its topic: the refused message again, and why it was refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import orjson

from worker.dead_letters import OUR_HEADERS, SEGMENT_SCHEMA
from worker.messages import Headers, RawMessage
from worker.transcript_view import printable

_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class Kept(StrEnum):
    """What a dead letter has in the place of the refused value."""

    WHOLE = "whole"
    NULL = "null"  # the value was null
    REFERENCE = "reference"  # to the message on its topic
    SEGMENT = "segment"  # a reference to the messages of a segment
    DROPPED = "dropped"  # nothing, because the topic did not take it


@dataclass(frozen=True, slots=True)
class Source:
    """Where the refused message lies; of a segment, the first of its messages."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Letter:
    """One record of the dead-letter topic; `value` and `key` are what it has of the original."""

    partition: int
    offset: int
    time_ms: int
    id: str
    code: str
    message: str
    stage: str
    attempts: int
    source: Source
    key: bytes | None
    value: bytes | None
    headers: Headers  # the producer's
    kept: Kept
    key_truncated: bool
    headers_dropped: bool  # some, or all

    @property
    def place(self) -> str:
        """How people and options name it: `<partition>:<offset>`."""
        return f"{self.partition}:{self.offset}"

    @property
    def shown_key(self) -> str | None:
        """The key as text that a terminal shows and `--key` takes; None without a key."""
        return None if self.key is None else printable(self.key.decode("utf-8", "backslashreplace"))

    @property
    def is_whole(self) -> bool:
        """Whether it has all that the refused message had."""
        lacks_value = self.kept not in (Kept.WHOLE, Kept.NULL)
        return not (lacks_value or self.key_truncated or self.headers_dropped)


def read_letter(raw: RawMessage) -> Letter | None:
    """The dead letter in a record; None if it is none of ours."""
    texts = {
        name: value.decode("utf-8", "replace")
        for name, value in raw.headers
        if name in OUR_HEADERS and value is not None
    }
    partition, offset, timestamp_ms, attempts = (
        _number(texts.get(name))
        for name in ("source.partition", "source.offset", "source.timestamp", "attempts")
    )
    if "error.code" not in texts or "source.topic" not in texts:
        return None
    if partition is None or offset is None:
        return None
    kept = _kept(texts, raw.value)
    return Letter(
        partition=raw.partition,
        offset=raw.offset,
        time_ms=raw.timestamp_ms,
        id=texts.get("error.id", f"{raw.topic}:{raw.partition}:{raw.offset}"),
        code=texts["error.code"],
        message=texts.get("error.message", ""),
        stage=texts.get("error.stage", ""),
        attempts=attempts or 1,
        source=Source(texts["source.topic"], partition, offset, timestamp_ms or 0),
        key=raw.key,
        value=None if kept is Kept.NULL else raw.value or b"",
        headers=tuple(header for header in raw.headers if header[0] not in OUR_HEADERS),
        kept=kept,
        key_truncated="key.truncated" in texts,
        headers_dropped="headers.dropped" in texts or "headers.unreadable" in texts,
    )


def _kept(texts: dict[str, str], value: bytes | None) -> Kept:
    if "value.null" in texts:
        return Kept.NULL
    if "value.dropped" in texts:
        return Kept.DROPPED
    if "value.reference" in texts:
        schema = reference_in(value).get("schema")
        return Kept.SEGMENT if schema == SEGMENT_SCHEMA else Kept.REFERENCE
    return Kept.WHOLE


def reference_in(value: bytes | None) -> dict[str, object]:
    """The JSON object in the place of a value; an empty one if it is none."""
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters; times are milliseconds since the epoch, `until_ms` itself is outside.

    An empty set, as None, selects all.
    """

    codes: frozenset[str] = frozenset()
    topic: str | None = None  # from which the message came
    key: str | None = None  # as `Letter.shown_key`
    since_ms: int | None = None
    until_ms: int | None = None
    places: frozenset[tuple[int, int]] = frozenset()  # (partition, offset)

    def has(self, letter: Letter) -> bool:
        """Whether a letter is one of them."""
        return (
            (not self.codes or letter.code in self.codes)
            and self.topic in (None, letter.source.topic)
            and self.key in (None, letter.shown_key)
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.until_ms is None or letter.time_ms < self.until_ms)
            and (not self.places or (letter.partition, letter.offset) in self.places)
        )
