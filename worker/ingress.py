"""Values that are more than raw audio, by their media type, read into the fields of the contract.

A reader gets the JSON object of a value and the texts of the headers; it returns the audio and the
texts that one of our own messages would have. What these mean is checked afterwards, for all alike.
Readers keep nothing: whatever a message does not restate, its headers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from oasr.audio.pcm import Encoding
from worker import audiohook, encoding_names, media_streams
from worker.envelope import json_object, read_envelope
from worker.errors import CodecError, ErrorCode

Texts = Mapping[str, str]
Reader = Callable[[Mapping[str, Any], Texts], tuple[bytes | None, dict[str, str]]]

READERS: Final[Mapping[str, Reader]] = {
    "application/json": read_envelope,
    "application/vnd.twilio.media+json": partial(media_streams.read, media_streams.TWILIO),
    "application/vnd.telnyx.media+json": partial(media_streams.read, media_streams.TELNYX),
    "application/vnd.genesys.audiohook+json": audiohook.read,
}
_RAW: Final = "application/octet-stream"


def read(
    media_type: str, value: bytes, texts: dict[str, str], default: Encoding | None
) -> tuple[bytes | None, dict[str, str]]:
    """The audio of a value and what its message says; CodecError for what makes no sense.

    Raw audio, of `default` encoding where no header names one, is returned as it is.
    """
    reader = READERS.get(media_type)
    if reader is not None:
        return reader(json_object(value, ErrorCode.INVALID_ENVELOPE), texts)
    if value and "encoding" not in texts:
        _check_raw(media_type, default)
    if media_type.endswith(("/json", "+json")):
        known = ", ".join(READERS)
        raise CodecError(
            ErrorCode.ENCODING_UNSUPPORTED, f"content-type is JSON, but not one of {known}"
        )
    return value, texts


def _check_raw(media_type: str, default: Encoding | None) -> None:
    """A media type does not say what audio is, but may say that it is something else."""
    refused = encoding_names.refused_by_name(media_type)
    if refused is not None and media_type.startswith(("audio/", "video/", "application/ogg")):
        raise CodecError(ErrorCode.ENCODING_UNSUPPORTED, f"by its content-type, {refused}")
    if default is None and encoding_names.meant_by(media_type):
        advice = encoding_names.advice(media_type)
        raise CodecError(
            ErrorCode.ENCODING_REQUIRED, f"there is no encoding, and content-type is none: {advice}"
        )
