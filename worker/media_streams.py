"""The JSON messages of Twilio's Media Streams, and those of the same shape from Telnyx.

`media` has one track of a call; the tracks are channels, `media.chunk` counts the messages of a
track and `media.timestamp` is the media time of its first sample. Only `start` names the format, so
it is µ-law at 8 kHz unless the headers of every message say something else. Sources: Twilio's
"Media Streams - WebSocket Messages", Telnyx's "Stream call media over WebSocket".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from worker import encoding_names
from worker.envelope import base64_audio, field_text
from worker.errors import CodecError, ErrorCode


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a platform spells what `start` says of the media."""

    format_field: str
    rate_field: str


TWILIO: Final = Dialect("mediaFormat", "sampleRate")
TELNYX: Final = Dialect("media_format", "sample_rate")

_EVENTS: Final = {
    "connected": "keepalive",
    "start": "start",
    "media": "audio",
    "dtmf": "keepalive",
    "mark": "keepalive",
    "error": "keepalive",
    "stop": "end",
}
_CHANNELS: Final = {"inbound": "0", "outbound": "1"}
_FORMAT: Final = {"encoding": "mulaw", "sample_rate": "8000"}
# never taken from headers
_OWN: Final = ("event", "channel", "sequence", "position_ms", "discarded_ms")


def read(
    dialect: Dialect, message: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[bytes | None, dict[str, str]]:
    """The audio of a message and the fields that it stands for; CodecError `invalid_envelope`."""
    name = message.get("event")
    event = _EVENTS.get(name) if isinstance(name, str) else None
    if event is None:
        raise _invalid(f"event is not one of {', '.join(_EVENTS)}")
    said = {**_FORMAT, **{name: text for name, text in texts.items() if name not in _OWN}}
    said["event"] = event
    if event == "audio":
        return _media(_object(message, "media"), said)
    if event == "start":
        _start(dialect, _object(message, "start"), said)
    elif "roles" in said:
        # Where no track is named, the roles tell how many channels there are.
        said.setdefault("channels", str(said["roles"].count(",") + 1))
    return None, said


def _media(media: Mapping[str, Any], said: dict[str, str]) -> tuple[bytes | None, dict[str, str]]:
    track = media.get("track")
    channel = _CHANNELS.get(track) if isinstance(track, str) else None
    if channel is None:
        raise _invalid("media.track is neither inbound nor outbound")
    said["channel"] = channel
    for name, source in (("sequence", "chunk"), ("position_ms", "timestamp")):
        value = media.get(source)
        if value is not None:
            said[name] = field_text(name, value)
    return base64_audio("media.payload", media.get("payload")), said


def _start(dialect: Dialect, start: Mapping[str, Any], said: dict[str, str]) -> None:
    """The clock begins with the first of the tracks; the format has to be the one we read."""
    tracks = start.get("tracks")
    said["channel"] = _CHANNELS["outbound" if tracks == ["outbound"] else "inbound"]
    said["position_ms"] = "0"
    media = start.get(dialect.format_field)
    if media is None:
        return
    stated = _object(start, dialect.format_field)
    encoding, rate = stated.get("encoding"), stated.get(dialect.rate_field)
    if isinstance(encoding, str) and said["encoding"] not in encoding_names.meant_by(encoding):
        raise _other_format("encoding")
    if rate is not None and str(rate) != said["sample_rate"]:
        raise _other_format("sample_rate")


def _object(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = message.get(name)
    if not isinstance(value, dict):
        raise _invalid(f"{name} is no object")
    return value


def _invalid(what: str) -> CodecError:
    return CodecError(ErrorCode.INVALID_ENVELOPE, what)


def _other_format(name: str) -> CodecError:
    what = f"the stream has another {name}: state it in a header of every message"
    return CodecError(ErrorCode.ENCODING_UNSUPPORTED, what)
