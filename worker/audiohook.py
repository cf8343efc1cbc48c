"""The control messages of Genesys AudioHook (protocol version 2).

Its audio comes in binary frames without any framing: on a topic these are chunks of raw audio,
whose headers state the format. The messages beside them are JSON objects with a `type`; each
becomes a control message of the contract. Source: the AudioHook protocol's description in the
Genesys Cloud Developer Center.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from worker.errors import CodecError, ErrorCode

_EVENTS: Final = {
    "open": "start",
    "close": "end",
    "paused": "flush",
    "discarded": "keepalive",
    "resumed": "keepalive",
    **dict.fromkeys(("ping", "pong", "dtmf", "update", "updated", "error", "event"), "keepalive"),
    **dict.fromkeys(("opened", "closed", "pause", "resume", "reconnect"), "keepalive"),
    **dict.fromkeys(("disconnect", "playback_started", "playback_completed"), "keepalive"),
}
_DURATION: Final = re.compile(
    r"PT(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)S)?", re.ASCII
)
_OWN: Final = (
    "event",
    "channel",
    "sequence",
    "position_ms",
    "discarded_ms",
)  # never taken from headers


def read(
    message: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[bytes | None, dict[str, str]]:
    """The fields that a control message stands for; CodecError `invalid_envelope`."""
    name = message.get("type")
    event = _EVENTS.get(name) if isinstance(name, str) else None
    if event is None:
        raise CodecError(ErrorCode.INVALID_ENVELOPE, "type is none of the protocol's")
    said = {name: text for name, text in texts.items() if name not in _OWN}
    said["event"] = event
    position = message.get("position")
    if event == "start" and position is not None:
        said["position_ms"] = f"{milliseconds(position):f}"
    if name in ("discarded", "resumed"):
        parameters = message.get("parameters")
        discarded = parameters.get("discarded") if isinstance(parameters, dict) else None
        if discarded is not None:
            said["discarded_ms"] = f"{milliseconds(discarded):f}"
    return None, said


def milliseconds(duration: object) -> Decimal:
    """An ISO 8601 duration of hours, minutes and seconds; CodecError `invalid_envelope`."""
    found = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if found is None or not any(found.groups()):
        raise CodecError(ErrorCode.INVALID_ENVELOPE, "a duration is not like PT1.5S")
    hours, minutes, seconds = (Decimal(part or 0) for part in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000
