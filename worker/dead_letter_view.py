"""Dead letters as people and programs see them; never their values, which are audio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from rich.table import Table

from worker.cloudevents import timestamp
from worker.dead_letter_read import Kept, Letter
from worker.transcript_view import printable

_HEADER_CHARACTERS: Final = 200
_FOLD: Final = "fold"


def listed(letters: Iterable[Letter]) -> Table:
    """A row for each letter."""
    view = Table(box=None, pad_edge=False)
    for name in ("place", "time", "code", "from", "key"):
        view.add_column(name, overflow=_FOLD)
    for name in ("tries", "bytes"):
        view.add_column(name, justify="right")
    view.add_column("message", overflow=_FOLD)
    for letter in letters:
        view.add_row(
            letter.place,
            f"{datetime.fromtimestamp(letter.time_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S}",
            printable(letter.code),
            _source(letter),
            "(no key)" if letter.shown_key is None else letter.shown_key,
            str(letter.attempts),
            _size(letter),
            printable(letter.message),
        )
    return view


def summary(counts: Mapping[tuple[str, str], int]) -> Table:
    """Numbers of letters by code and topic, the most frequent first."""
    view = Table(box=None, pad_edge=False)
    view.add_column("letters", justify="right")
    view.add_column("code")
    view.add_column("from")
    for (code, topic), count in _by_number(counts):
        view.add_row(str(count), printable(code), printable(topic))
    view.add_row(str(sum(counts.values())), "in all", "")
    return view


def json_summary(counts: Mapping[tuple[str, str], int]) -> str:
    """The same as one line of JSON."""
    codes = [
        {"code": code, "topic": topic, "letters": count}
        for (code, topic), count in _by_number(counts)
    ]
    return orjson.dumps({"letters": sum(counts.values()), "codes": codes}).decode()


def _by_number(counts: Mapping[tuple[str, str], int]) -> list[tuple[tuple[str, str], int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def json_line(letter: Letter, with_headers: bool = False) -> str:
    """A letter as one line of JSON; times in milliseconds since the epoch."""
    source = letter.source
    described: dict[str, Any] = {
        "partition": letter.partition,
        "offset": letter.offset,
        "time_ms": letter.time_ms,
        "id": letter.id,
        "code": letter.code,
        "message": letter.message,
        "stage": letter.stage,
        "attempts": letter.attempts,
        "source": {
            "topic": source.topic,
            "partition": source.partition,
            "offset": source.offset,
            "timestamp_ms": source.timestamp_ms,
        },
        "key": letter.shown_key,
        "value": letter.kept.value,
        "value_bytes": len(letter.value or b""),
        "whole": letter.is_whole,
    }
    if with_headers:
        described["headers"] = [
            [name, None if value is None else value.decode("utf-8", "backslashreplace")]
            for name, value in letter.headers
        ]
    return orjson.dumps(described).decode()


def shown(letter: Letter) -> str:
    """All about a letter but its value, as lines."""
    lines = [
        ("place", letter.place),
        ("id", letter.id),
        ("code", letter.code),
        ("message", letter.message),
        ("stage", letter.stage),
        ("time", timestamp(letter.time_ms)),
        ("attempts", str(letter.attempts)),
        ("from", f"{_source(letter)} of {timestamp(letter.source.timestamp_ms)}"),
        ("key", "none" if letter.shown_key is None else _key(letter)),
        ("value", f"{letter.kept.value}, {_size(letter)} bytes"),
        ("headers", "not all of them" if letter.headers_dropped else str(len(letter.headers))),
    ]
    told = [f"{name:<10}{printable(text)}" for name, text in lines]
    for name, value in letter.headers:
        text = "null" if value is None else value.decode("utf-8", "backslashreplace")
        cut = text[:_HEADER_CHARACTERS] + ("…" if len(text) > _HEADER_CHARACTERS else "")
        told.append(f"  {printable(name)}: {printable(cut)}")
    return "\n".join(told)


def _key(letter: Letter) -> str:
    cut = ", cut off" if letter.key_truncated else ""
    return f"{letter.shown_key} ({len(letter.key or b'')} bytes{cut})"


def _source(letter: Letter) -> str:
    source = letter.source
    return printable(f"{source.topic}:{source.partition}:{source.offset}")


def _size(letter: Letter) -> str:
    return str(len(letter.value or b"")) if letter.kept is Kept.WHOLE else letter.kept.value
