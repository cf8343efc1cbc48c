"""Dead letters: the refused message as it came, with the reason in its headers.

A message that would not fit keeps a reference to itself in the place of its value; so does a
segment, whose messages are not kept.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Final

import orjson

from worker.cloudevents import timestamp
from worker.errors import ErrorCode
from worker.events import Cause
from worker.messages import Headers, Kind, OutRecord, RawMessage
from worker.records import Segment

MAX_MESSAGE_BYTES: Final = 1024
REFERENCE_SCHEMA: Final = "oasr.value-reference.v1"
SEGMENT_SCHEMA: Final = "oasr.segment-reference.v1"
# What brokers and clients take by default is 1 048 588 and 1 000 000 bytes.
DEFAULT_MAX_BYTES: Final = 950_000
# Room for our own headers, the record's framing and the reference.
_RESERVE_BYTES: Final = 8 * 1024
_MAX_KEPT_HEADER_BYTES: Final = 64 * 1024
_MAX_KEPT_KEY_BYTES: Final = 64 * 1024
# What a header needs besides its name and value: two lengths, at most five bytes each.
_HEADER_FRAME_BYTES: Final = 10
_COUNT: Final = re.compile(rb"[0-9]{1,6}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# How often a message that was replayed had been refused before; only a replay writes it.
ATTEMPTS_BEFORE: Final = "replay.attempts"
OUR_HEADERS: Final = frozenset(
    (
        *("error.code", "error.message", "error.stage", "error.time", "error.id", "attempts"),
        *("source.topic", "source.partition", "source.offset", "source.timestamp"),
        *("value.null", "value.reference", "value.dropped"),
        *("headers.dropped", "headers.unreadable", "key.truncated", ATTEMPTS_BEFORE),
    )
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message is refused; `stage` is the step of its life that refused it.

    `attempts` does not count those before a replay: the message itself tells of them.
    """

    code: ErrorCode
    message: str
    stage: str
    attempts: int = 1


def build(
    raw: RawMessage, refusal: Refusal, now_ms: int, max_bytes: int = DEFAULT_MAX_BYTES
) -> OutRecord:
    """The dead letter of a message; key, value and headers together stay below `max_bytes`."""
    # A dead letter that was sent again and refused again tells its last refusal only.
    original = tuple((name, value) for name, value in raw.headers if name not in OUR_HEADERS)
    refusal = replace(refusal, attempts=refusal.attempts + _attempts_before(raw.headers))
    fitted, notes = _fit(replace(raw, headers=original), max_bytes - _RESERVE_BYTES)
    if not raw.headers_readable:
        notes.append(("headers.unreadable", "true"))
    cause = Cause(raw.topic, raw.partition, raw.offset)
    ours = [
        ("error.id", cause.id(refusal.code)),
        *_reasons(refusal, cause, raw.timestamp_ms, now_ms),
        *notes,
    ]
    return OutRecord(
        kind=Kind.DEAD_LETTER,
        key=fitted.key,
        value=fitted.value or b"",
        headers=(*fitted.headers, *_encoded(ours)),
    )


def of_segment(segment: Segment, refusal: Refusal, timestamp_ms: int, now_ms: int) -> OutRecord:
    """The dead letter of a segment, as a reference to its messages; it has an id of its own.

    `timestamp_ms` is that of the message that holds the beginning of the segment's span.
    """
    source = segment.source
    value = {
        "schema": SEGMENT_SCHEMA,
        "topic": source.topic,
        "partition": source.partition,
        "first_offset": source.first_offset,
        "last_offset": source.last_offset,
        "channel": segment.channel,
        "start_sample": segment.start_sample,
        "end_sample": segment.end_sample,
        "sample_rate": segment.sample_rate,
    }
    cause = Cause(source.topic, source.partition, source.first_offset)
    headers = [
        ("error.id", f"{segment.segment_id}:{refusal.code.value}"),
        *_reasons(refusal, cause, timestamp_ms, now_ms),
        ("value.reference", "true"),
    ]
    return OutRecord(
        kind=Kind.DEAD_LETTER,
        key=segment.session_id.encode(),
        value=orjson.dumps(value),
        headers=_encoded(headers),
    )


def _reasons(
    refusal: Refusal, cause: Cause, timestamp_ms: int, now_ms: int
) -> list[tuple[str, str]]:
    return [
        ("error.code", refusal.code.value),
        ("error.message", _clean(refusal.message)),
        ("error.stage", refusal.stage),
        ("error.time", timestamp(now_ms)),
        ("source.topic", cause.topic),
        ("source.partition", str(cause.partition)),
        ("source.offset", str(cause.offset)),
        ("source.timestamp", str(timestamp_ms)),
        ("attempts", str(refusal.attempts)),
    ]


def _attempts_before(headers: Headers) -> int:
    """What a replay wrote; 0 for anything else."""
    texts = [value for name, value in headers if name == ATTEMPTS_BEFORE]
    text = texts[-1] if texts else None
    return int(text) if text is not None and _COUNT.fullmatch(text) else 0


def _encoded(texts: list[tuple[str, str]]) -> Headers:
    return tuple((name, text.encode()) for name, text in texts)


def _fit(raw: RawMessage, budget: int) -> tuple[RawMessage, list[tuple[str, str]]]:
    """The message in at most `budget` bytes, and notes on what that cost."""
    notes = [("value.null", "true")] if raw.value is None else []
    if _size(raw) <= budget:
        return raw, notes
    kept = _short_headers(raw.headers)
    if len(kept) < len(raw.headers):
        notes.append(("headers.dropped", str(len(raw.headers) - len(kept))))
    key = raw.key
    if key is not None and len(key) > _MAX_KEPT_KEY_BYTES:
        notes.append(("key.truncated", "true"))
        key = key[:_MAX_KEPT_KEY_BYTES]
    fitted = replace(raw, key=key, headers=kept)
    if _size(fitted) > budget:
        notes.append(("value.reference", "true"))
        fitted = replace(fitted, value=_reference(raw))
    return fitted, notes


def _clean(message: str) -> str:
    """The message without control characters, at most 1 KiB of UTF-8."""
    text = _CONTROL.sub(" ", message).encode("utf-8", "replace")
    return text[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore")


def _reference(raw: RawMessage) -> bytes:
    value = raw.value or b""
    return orjson.dumps(
        {
            "schema": REFERENCE_SCHEMA,
            "topic": raw.topic,
            "partition": raw.partition,
            "offset": raw.offset,
            "size_bytes": len(value),
            "sha256": hashlib.sha256(value).hexdigest(),
        }
    )


def _short_headers(headers: Headers) -> Headers:
    """The first headers, as many as fit in 64 KiB."""
    kept = []
    room = _MAX_KEPT_HEADER_BYTES
    for name, value in headers:
        room -= _header_bytes(name, value)
        if room >= 0:
            kept.append((name, value))
    return tuple(kept)


def _size(raw: RawMessage) -> int:
    headers = sum(_header_bytes(name, value) for name, value in raw.headers)
    return len(raw.key or b"") + len(raw.value or b"") + headers


def _header_bytes(name: str, value: bytes | None) -> int:
    return _HEADER_FRAME_BYTES + len(name.encode()) + len(value or b"")
