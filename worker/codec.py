"""From messages to chunks and file jobs: everything a producer can get wrong ends here.

A message is headers and raw bytes, a JSON envelope of the same fields with base64 `audio`, or what
another system says in a shape of its own (`worker.ingress`).
Of repeated headers the last counts; a header without a value is as good as absent. A null value
is a tombstone, unless `event` names something to do without audio.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from oasr.audio.pcm import Encoding
from worker import fields, ingress
from worker.envelope import (
    CHUNK_FIELDS,
    FORMAT_FIELDS,
    field_texts,
    header_texts,
    json_object,
    media_type,
)
from worker.errors import CodecError, ErrorCode
from worker.fields import Event
from worker.messages import RawMessage
from worker.options import SessionOptions, parse_options

__all__ = [
    "Chunk",
    "ChunkDefaults",
    "CodecError",
    "Event",
    "FileJob",
    "parse_chunk",
    "parse_file",
]

_FILE_FIELDS: Final = frozenset(("options", "roles", "priority", "traceparent"))
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\x00-\x20\x7f-\x9f]{1,2048}", re.ASCII)
_MAX_SEQUENCE: Final = 2**53


@dataclass(frozen=True, slots=True)
class ChunkDefaults:
    """What a message that does not say it is taken to be."""

    encoding: Encoding | None = None
    sample_rate: int | None = None
    max_value_bytes: int = 1 << 20
    content_type: str | None = None  # of values of at least a byte


@dataclass(slots=True)  # frozen ones take three times as long to make
class Chunk:
    """One message of the chunk topic; `audio` is None for a control message without any."""

    session_id: str
    event: Event
    audio: bytes | None
    encoding: Encoding | None  # of the audio; None only where there is none
    sample_rate: int | None
    channels: int  # of the session, as far as this message says
    channel: int | None  # the one channel in a mono message; None: all, interleaved
    roles: tuple[str, ...]
    sequence: int | None
    position_ms: int | None  # media time of the first sample
    options: SessionOptions
    priority: int
    traceparent: str | None
    discarded_ms: int = 0  # of audio before this message, which was kept out of the recording

    @property
    def width(self) -> int:
        """Channels interleaved in the audio."""
        return self.channels if self.channel is None else 1


@dataclass(frozen=True, slots=True)
class FileJob:
    """One message of the file topic; exactly one of `audio` and `uri` is there."""

    file_id: str
    audio: bytes | None
    uri: str | None
    sha256: str | None = None
    size_bytes: int | None = None
    roles: tuple[str, ...] = ()
    options: SessionOptions = field(default_factory=SessionOptions)
    priority: int = 0
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class _Format:
    """The part of a message that stays the same over a call."""

    encoding: Encoding | None
    sample_rate: int | None
    channels: int
    channel: int | None
    roles: tuple[str, ...]
    options: SessionOptions


def parse_chunk(raw: RawMessage, defaults: ChunkDefaults) -> Chunk | None:
    """The chunk in a message, None for a tombstone; CodecError for anything else."""
    _check_headers(raw)
    texts = header_texts(raw.headers, CHUNK_FIELDS)
    event_text = texts.get("event")
    if raw.value is None and event_text in (None, Event.AUDIO.value):
        return None
    session_id = fields.key(raw.key)
    audio = raw.value
    if audio is not None and len(audio) > defaults.max_value_bytes:
        raise CodecError(ErrorCode.VALUE_TOO_LARGE, f"the value has {len(audio)} bytes")
    shape = media_type(raw.headers) or (defaults.content_type if audio else None)
    if shape is not None and audio is not None:
        audio, texts = ingress.read(shape, audio, texts, defaults.encoding)
        event_text = texts.get("event")
    event = Event.AUDIO if event_text is None else fields.event(event_text)
    return _chunk(session_id, event, audio, texts, defaults)


def parse_file(raw: RawMessage) -> FileJob | None:
    """The job in a message of the file topic, None for a tombstone; CodecError otherwise."""
    if raw.value is None:
        return None
    _check_headers(raw)
    file_id = fields.key(raw.key)
    texts = header_texts(raw.headers, _FILE_FIELDS)
    content_type = media_type(raw.headers)
    if content_type is not None and content_type.startswith("audio/"):
        return _file_job(file_id, texts, {"audio": raw.value})
    if content_type not in (None, "application/json"):
        raise CodecError(
            ErrorCode.ENCODING_UNSUPPORTED, "content-type is neither application/json nor audio/*"
        )
    value = json_object(raw.value, ErrorCode.INVALID_FILE_JOB)
    claim = {name: value.pop(name, None) for name in ("uri", "sha256", "size_bytes")}
    try:
        texts = {**texts, **field_texts(value, _FILE_FIELDS)}
    except CodecError as error:
        if error.code is not ErrorCode.INVALID_ENVELOPE:
            raise
        raise CodecError(ErrorCode.INVALID_FILE_JOB, error.message) from error
    _check_claim(claim)
    return _file_job(file_id, texts, claim)


def _check_headers(raw: RawMessage) -> None:
    if not raw.headers_readable:
        raise CodecError(ErrorCode.INVALID_HEADER, "the name of a header is not UTF-8")


def _chunk(
    session_id: str,
    event: Event,
    audio: bytes | None,
    texts: Mapping[str, str],
    defaults: ChunkDefaults,
) -> Chunk:
    media = _parse_format(*map(texts.get, FORMAT_FIELDS))
    encoding = media.encoding or defaults.encoding
    sample_rate = media.sample_rate or defaults.sample_rate
    if event is Event.AUDIO and audio is None:
        raise CodecError(ErrorCode.INVALID_ENVELOPE, "an audio event without audio")
    if audio and not event.may_carry_audio:
        raise fields.invalid("event", f"one that carries audio: {event.value}")
    if audio or event is Event.AUDIO:
        if encoding is None:
            raise CodecError(ErrorCode.ENCODING_REQUIRED, "the audio has no encoding")
        if sample_rate is None:
            raise CodecError(ErrorCode.SAMPLE_RATE_REQUIRED, "the audio has no sample rate")
    sequence = texts.get("sequence")
    position = texts.get("position_ms")
    return Chunk(
        session_id=session_id,
        event=event,
        audio=audio,
        encoding=encoding,
        sample_rate=sample_rate,
        channels=media.channels,
        channel=media.channel,
        roles=media.roles,
        sequence=None if sequence is None else _sequence(sequence),
        position_ms=None if position is None else fields.position_ms(position),
        options=media.options,
        priority=_priority(texts),
        traceparent=_traceparent(texts),
        discarded_ms=fields.discarded_ms(texts["discarded_ms"]) if "discarded_ms" in texts else 0,
    )


# A call restates the same few values with every chunk.
@lru_cache(maxsize=512)
def _parse_format(
    encoding: str | None,
    sample_rate: str | None,
    channels: str | None,
    channel: str | None,
    roles: str | None,
    options: str | None,
) -> _Format:
    names = () if roles is None else fields.roles(roles)
    index = None if channel is None else fields.integer("channel", channel, 0, 7)
    total = (
        None if channels is None else fields.integer("channels", channels, 1, fields.MAX_CHANNELS)
    )
    if total is None:
        total = 1 if index is None else max(len(names), index + 1)
    if index is not None and index >= total:
        raise fields.invalid("channel", f"below the {total} channels")
    if len(names) > total:
        raise fields.invalid("roles", f"one name for each of {total} channels")
    return _Format(
        encoding=None if encoding is None else fields.encoding(encoding),
        sample_rate=(
            None
            if sample_rate is None
            else fields.integer(
                "sample_rate", sample_rate, fields.MIN_SAMPLE_RATE, fields.MAX_SAMPLE_RATE
            )
        ),
        channels=total,
        channel=index,
        roles=names,
        options=SessionOptions() if options is None else parse_options(options),
    )


def _file_job(file_id: str, texts: Mapping[str, str], source: Mapping[str, Any]) -> FileJob:
    return FileJob(
        file_id=file_id,
        audio=source.get("audio"),
        uri=source.get("uri"),
        sha256=source.get("sha256"),
        size_bytes=source.get("size_bytes"),
        roles=fields.roles(texts["roles"]) if "roles" in texts else (),
        options=parse_options(texts["options"]) if "options" in texts else SessionOptions(),
        priority=_priority(texts),
        traceparent=_traceparent(texts),
    )


def _check_claim(claim: Mapping[str, Any]) -> None:
    uri, sha256, size_bytes = claim["uri"], claim["sha256"], claim["size_bytes"]
    if not isinstance(uri, str) or not _URI.fullmatch(uri):
        raise CodecError(ErrorCode.INVALID_FILE_JOB, "uri is not a URI")
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise CodecError(ErrorCode.INVALID_FILE_JOB, "sha256 is not 64 hexadecimal digits")
    if size_bytes is not None and (type(size_bytes) is not int or size_bytes < 0):
        raise CodecError(ErrorCode.INVALID_FILE_JOB, "size_bytes is not a number of bytes")


def _sequence(text: str) -> int:
    return fields.integer("sequence", text, 0, _MAX_SEQUENCE)


def _priority(texts: Mapping[str, str]) -> int:
    text = texts.get("priority")
    return 0 if text is None else fields.priority(text)


def _traceparent(texts: Mapping[str, str]) -> str | None:
    text = texts.get("traceparent")
    return None if text is None else fields.traceparent(text)
