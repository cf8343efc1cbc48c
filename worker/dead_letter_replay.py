"""Dead letters become messages again: the original, byte for byte, and how often it was tried.

A letter that does not have the whole original is completed from the topic that it came from, if the
same message still lies there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from worker.dead_letter_read import Kept, Letter, Selection, read_letter, reference_in
from worker.dead_letters import ATTEMPTS_BEFORE, OUR_HEADERS
from worker.messages import Headers, RawMessage

Original = Callable[[str, int, int], RawMessage | None]

_UNREADABLE: Final = "its headers cannot be read"
_SEGMENT: Final = "it is about a segment of a call and holds no message"
_GONE: Final = "its topic does not have the original any more"
_CHANGED: Final = "another message lies where the original was"


class NotReplayable(Exception):
    """A letter cannot be sent again; the message says why, for people."""


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """What may be sent again, and whereto."""

    topics: frozenset[str]  # of the worker's input: no other one is read from or sent to
    to: str | None = None  # instead of the topic that a letter came from
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it goes out again."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class Handled:
    """Up to which offset of each partition every record is done with, in whatever order."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}
        self._open: dict[int, dict[int, None]] = {}

    def begin(self, partition: int, offset: int) -> None:
        """The next record of a partition."""
        self._highest[partition] = offset
        self._open.setdefault(partition, {})[offset] = None

    def done(self, partition: int, offset: int) -> None:
        """Nothing more is to be done about a record."""
        self._open[partition].pop(offset, None)

    def up_to(self) -> dict[int, int]:
        """The last offset of each partition up to which all is done; -1 if not even the first."""
        return {
            number: next(iter(self._open[number]), highest + 1) - 1
            for number, highest in sorted(self._highest.items())
        }


def selected(
    records: Iterable[RawMessage], selection: Selection, handled: Handled
) -> Iterator[Letter]:
    """The letters of a selection, of repeats the first; all others are done with."""
    seen: set[str] = set()
    for raw in records:
        letter = read_letter(raw)
        handled.begin(raw.partition, raw.offset)
        if letter is None or not selection.has(letter) or letter.id in seen:
            handled.done(raw.partition, raw.offset)
            continue
        seen.add(letter.id)
        yield letter


def outgoing(letter: Letter, rules: ReplayRules, original: Original) -> Outgoing:
    """The message of a letter as it goes out again; raises NotReplayable."""
    if letter.source.topic not in rules.topics:
        raise NotReplayable("it does not come from a topic of this worker's input")
    if letter.attempts >= rules.max_attempts:
        raise NotReplayable(f"it was tried {letter.attempts} times")
    key, value, headers = whole(letter, original)
    before = (ATTEMPTS_BEFORE, str(letter.attempts).encode())
    return Outgoing(rules.to or letter.source.topic, key, value, (*headers, before))


def whole(letter: Letter, original: Original) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers of the refused message; raises NotReplayable."""
    if letter.is_whole:
        return letter.key, letter.value, letter.headers
    if letter.kept is Kept.SEGMENT:
        raise NotReplayable(_SEGMENT)
    raw = original(letter.source.topic, letter.source.partition, letter.source.offset)
    if raw is None:
        raise NotReplayable(_GONE)
    if not _is_same(letter, raw):
        raise NotReplayable(_CHANGED)
    if not raw.headers_readable:
        raise NotReplayable(_UNREADABLE)
    return raw.key, raw.value, tuple(h for h in raw.headers if h[0] not in OUR_HEADERS)


def _is_same(letter: Letter, raw: RawMessage) -> bool:
    """Whether a message has all that its letter tells of it."""
    if letter.key_truncated:
        has_key = raw.key is not None and raw.key.startswith(letter.key or b"")
    else:
        has_key = raw.key == letter.key
    return has_key and raw.timestamp_ms == letter.source.timestamp_ms and _has_value(letter, raw)


def _has_value(letter: Letter, raw: RawMessage) -> bool:
    if letter.kept is Kept.DROPPED:
        return True
    if letter.kept is not Kept.REFERENCE:
        return raw.value == letter.value
    reference, value = reference_in(letter.value), raw.value or b""
    return (reference.get("size_bytes"), reference.get("sha256")) == (
        len(value),
        hashlib.sha256(value).hexdigest(),
    )
