"""The two ways in which a message says something: headers, and a JSON value of the same fields.

Both become a mapping of field names to texts, so that one set of rules checks them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from worker import fields
from worker.errors import CodecError, ErrorCode
from worker.messages import Headers
from worker.options import MAX_OPTIONS_BYTES

MAX_HEADER_BYTES: Final = 1024

FORMAT_FIELDS: Final = ("encoding", "sample_rate", "channels", "channel", "roles", "options")
CHUNK_FIELDS: Final = frozenset(
    (
        *(*FORMAT_FIELDS, "sequence", "position_ms", "discarded_ms"),
        *("event", "priority", "traceparent"),
    )
)

_EVER_NEW: Final = frozenset(("sequence", "position_ms", "discarded_ms", "traceparent"))


def header_texts(headers: Headers, names: frozenset[str]) -> dict[str, str]:
    """The known headers as text, the last of each name."""
    restated: dict[str, bytes] = {}
    new: dict[str, bytes] = {}
    for name, value in headers:
        if name in names and value is not None:
            (new if name in _EVER_NEW else restated)[name] = value
    return {**_decoded_again(tuple(restated.items())), **_decoded(new.items())}


# A call states the same few things with every message.
@lru_cache(maxsize=512)
def _decoded_again(headers: tuple[tuple[str, bytes], ...]) -> dict[str, str]:
    return _decoded(headers)


def _decoded(headers: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in headers:
        if len(value) > (MAX_OPTIONS_BYTES if name == "options" else MAX_HEADER_BYTES):
            raise CodecError(ErrorCode.HEADER_TOO_LARGE, f"{name} has {len(value)} bytes")
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError as error:
            raise fields.invalid(name, "UTF-8") from error
    return texts


def media_type(headers: Headers) -> str | None:
    """The media type without its parameters, in lower case; CodecError `header_too_large`."""
    found = None
    for name, value in headers:
        if name == "content-type" and value is not None:
            found = value
    if found is None:
        return None
    if len(found) > MAX_HEADER_BYTES:
        raise CodecError(ErrorCode.HEADER_TOO_LARGE, f"content-type has {len(found)} bytes")
    return _without_parameters(found)


@lru_cache(maxsize=64)
def _without_parameters(found: bytes) -> str:
    return found.split(b";", 1)[0].strip().lower().decode("ascii", "replace")


def json_object(value: bytes, code: ErrorCode) -> dict[str, Any]:
    """The JSON object in a value; CodecError `code` for anything else."""
    try:
        decoded = orjson.loads(value)
    except ValueError as error:
        raise CodecError(code, "the value is not JSON") from error
    if not isinstance(decoded, dict):
        raise CodecError(code, "the value is not a JSON object")
    return decoded


def read_envelope(
    envelope: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[bytes | None, dict[str, str]]:
    """The audio of an envelope, and its fields over those of the headers in `texts`."""
    audio = envelope.get("audio")
    decoded = None if audio is None else base64_audio("audio", audio)
    return decoded, {**texts, **field_texts(envelope, CHUNK_FIELDS | {"audio"})}


def base64_audio(name: str, text: object) -> bytes:
    """The bytes that a field has as base64."""
    if not isinstance(text, str):
        raise CodecError(ErrorCode.INVALID_ENVELOPE, f"{name} is not a string")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CodecError(ErrorCode.INVALID_ENVELOPE, f"{name} is not base64") from error


def field_texts(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, str]:
    """The fields of a JSON object as the texts that headers of their names would have."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        if name not in names:
            raise CodecError(ErrorCode.INVALID_ENVELOPE, "a field of the value has no meaning")
        if value is None or name == "audio":
            continue
        texts[name] = field_text(name, value)
    return texts


def field_text(name: str, value: object) -> str:
    """One field of a JSON object as the text that a header of its name would have."""
    limit = MAX_HEADER_BYTES
    if name == "options" and isinstance(value, dict):
        text, limit = _json_text(value), MAX_OPTIONS_BYTES
    elif name == "roles" and isinstance(value, list):
        text = ",".join(role if isinstance(role, str) else "," for role in value)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        text = str(value)
        limit = MAX_OPTIONS_BYTES if name == "options" else limit
    else:
        raise fields.invalid(name, "a text or a number")
    if len(text) > limit:
        raise CodecError(ErrorCode.HEADER_TOO_LARGE, f"{name} has {len(text)} characters")
    return text


def _json_text(value: dict[str, Any]) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # nested deeper than orjson writes
        raise CodecError(ErrorCode.INVALID_OPTIONS, "options are nested too deeply") from error
