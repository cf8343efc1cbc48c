"""Values of headers and of the envelope fields that have their names, checked one by one.

Every function takes the text of one value and raises CodecError `invalid_header`, naming the
field and never quoting the value.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from oasr.audio.pcm import Encoding
from worker import encoding_names
from worker.errors import CodecError, ErrorCode

MAX_CHANNELS: Final = 8
MIN_SAMPLE_RATE: Final = 4_000
MAX_SAMPLE_RATE: Final = 192_000
MAX_KEY_BYTES: Final = 256

_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?", re.ASCII)
_STRETCH: Final = re.compile(r"[0-9]{1,8}(\.[0-9]{1,9})?", re.ASCII)
_ROLE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII
)
# C0, DEL and C1, the line and paragraph separators, and what turns the direction of text.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ENCODINGS: Final = {encoding.value: encoding for encoding in Encoding}


class Event(StrEnum):
    """What a chunk message is."""

    AUDIO = "audio"
    START = "start"
    END = "end"
    ABORT = "abort"
    FLUSH = "flush"
    KEEPALIVE = "keepalive"

    @property
    def may_carry_audio(self) -> bool:
        """Whether bytes in the value are audio of the session."""
        return self is Event.AUDIO or self is Event.END


_EVENTS: Final = {event.value: event for event in Event}


def invalid(name: str, expected: str) -> CodecError:
    """The error of a field that is not what it has to be."""
    return CodecError(ErrorCode.INVALID_HEADER, f"{name} is not {expected}")


@lru_cache(maxsize=4096)
def key(raw_key: bytes | None) -> str:
    """The session or file id in a message key."""
    if raw_key is None:
        raise CodecError(ErrorCode.KEY_REQUIRED, "the message has no key")
    if not 1 <= len(raw_key) <= MAX_KEY_BYTES:
        raise CodecError(ErrorCode.KEY_INVALID, f"the key has {len(raw_key)} bytes, not 1 to 256")
    try:
        text = raw_key.decode()
    except UnicodeDecodeError as error:
        raise CodecError(ErrorCode.KEY_INVALID, "the key is not UTF-8") from error
    if _CONTROL.search(text):
        raise CodecError(ErrorCode.KEY_INVALID, "the key has control characters")
    return text


def integer(name: str, text: str, low: int, high: int) -> int:
    """A decimal integer in [low, high]."""
    if not _INTEGER.fullmatch(text) or not low <= (number := int(text)) <= high:
        raise invalid(name, f"an integer of {low} to {high}")
    return number


def position_ms(text: str) -> int:
    """A media time, rounded to whole milliseconds: those travel in the session map."""
    if not _DECIMAL.fullmatch(text):
        raise invalid("position_ms", "a number of milliseconds")
    return int(float(text) + 0.5)


def discarded_ms(text: str) -> int:
    """A stretch of media time of less than 28 hours, rounded to whole milliseconds."""
    if not _STRETCH.fullmatch(text):
        raise invalid("discarded_ms", "a number of milliseconds of at most 8 digits")
    return int(float(text) + 0.5)


def priority(text: str) -> int:
    """A priority; what is more urgent than the most urgent is 0."""
    return max(0, integer("priority", text, -(10**17), 10**17))


def event(text: str) -> Event:
    """The event of a message."""
    found = _EVENTS.get(text)
    if found is None:
        raise invalid("event", f"one of {', '.join(_EVENTS)}")
    return found


def encoding(text: str) -> Encoding:
    """The encoding of raw audio; CodecError `encoding_unsupported` for another one."""
    found = _ENCODINGS.get(text)
    if found is None:
        what = f"encoding is not one that we read: {encoding_names.advice(text)}"
        raise CodecError(ErrorCode.ENCODING_UNSUPPORTED, what)
    return found


def roles(text: str) -> tuple[str, ...]:
    """The roles of the channels in their order; spaces around the commas are allowed."""
    names = tuple(part.strip(" ") for part in text.split(","))
    if len(names) > MAX_CHANNELS or not all(_ROLE.fullmatch(name) for name in names):
        raise invalid("roles", "a list of at most 8 names of 1 to 64 letters, digits, _ and -")
    return names


def traceparent(text: str) -> str | None:
    """A W3C trace context; None for anything else, because tracing never refuses a message."""
    if not _TRACEPARENT.fullmatch(text) or (text.startswith("00") and len(text) != 55):
        return None
    return text
