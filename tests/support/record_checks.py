"""Every record that the worker makes in a test is one of its schemas, wherever the test looks.

`check_records_that_are_made` watches the records made in this process; those of worker
processes are checked when a test reads them from a topic.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import fastjsonschema

from tests.support.schemas import SCHEMAS
from worker.messages import Headers, Kind, OutRecord

_SCHEMA_OF_TYPE = {
    b"oasr.transcript": "transcript",
    b"oasr.session": "session-event",
    b"oasr.file": "file-completed",
    b"oasr.partition": "partition-event",
}


class WrongRecord(AssertionError):
    """A record is not what its schema says."""


@functools.cache
def compiled(name: str) -> Callable[[Any], Any]:
    """The compiled validator of `schemas/<name>.schema.json`."""
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    return fastjsonschema.compile(json.loads(text), use_default=False)


def check_record(value: bytes | None, headers: Headers) -> str | None:
    """The schema that the record of the worker is by; None where it is not the worker's.

    WrongRecord for one that has the headers of the worker's records and is not one.
    """
    texts = dict(headers)
    if "error.code" in texts:
        _check("dead-letter.headers", {name: text.decode() for name, text in _ours(texts)})
        if texts.get("value.reference") == b"true" and "value.dropped" not in texts:
            _check("dead-letter.reference", json.loads(value or b"null"))
        return "dead-letter.headers"
    kind = (texts.get("ce_type") or b"").rsplit(b".", 2)[0]
    if kind not in _SCHEMA_OF_TYPE:
        return None
    name = _SCHEMA_OF_TYPE[kind]
    if len(texts) < len(headers):
        raise WrongRecord("a header of the record stands twice")
    _check("record.headers", {key: (text or b"").decode() for key, text in texts.items()})
    _check(name, json.loads(value or b"null"))
    return name


def check_records_that_are_made() -> None:
    """From now on every record that a module of the worker makes is checked, or raises."""
    make = OutRecord.__init__
    if hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def checked(self: OutRecord, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        # What a test lays out itself need not be a record.
        if sys._getframe(1).f_globals["__name__"].startswith("worker."):
            name = check_record(self.value, self.headers)
            if name is None and self.kind is not Kind.STATE:
                raise WrongRecord(f"a record of the kind {self.kind} has no known type")

    OutRecord.__init__ = checked  # type: ignore[method-assign]


def _ours(texts: dict[str, bytes | None]) -> list[tuple[str, bytes]]:
    """The headers that the worker adds to a dead letter; those of the message are anything."""
    return [(name, texts[name] or b"") for name in _our_names() if name in texts]


@functools.cache
def _our_names() -> tuple[str, ...]:
    text = (SCHEMAS / "dead-letter.headers.schema.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)["properties"])


def _check(name: str, instance: Any) -> None:
    try:
        compiled(name)(instance)
    except fastjsonschema.JsonSchemaValueException as error:
        raise WrongRecord(f"{name}: {error.message}") from None
