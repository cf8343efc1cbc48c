"""Recordings as messages of the file topic: their bytes, or a claim check to where they lie."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import orjson

from worker.messages import Headers

_MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".mp4": "audio/mp4",
    ".3gp": "audio/3gpp",
    ".aac": "audio/aac",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
    ".webm": "audio/webm",
    ".mka": "audio/x-matroska",
    ".amr": "audio/amr",
    ".awb": "audio/amr-wb",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
    ".caf": "audio/x-caf",
    ".au": "audio/basic",
    ".gsm": "audio/gsm",
}


SUFFIXES = tuple(_MEDIA_TYPES)  # of what the worker reads


@dataclass(frozen=True, slots=True)
class FileMessage:
    """A message of the file topic without its key."""

    value: bytes
    headers: Headers


def inline_job(path: Path) -> FileMessage:
    """The recording itself; raises ValueError for a suffix of no kind that the worker reads."""
    media_type = _MEDIA_TYPES.get(path.suffix.lower())
    if media_type is None:
        raise ValueError(f"{path.name} is none of {', '.join(_MEDIA_TYPES)}")
    return FileMessage(path.read_bytes(), (("content-type", media_type.encode()),))


def claim_check(path: Path) -> FileMessage:
    """A `file://` reference with size and digest; the worker must see the same file system."""
    with open(path, "rb") as recording:
        digest = hashlib.file_digest(recording, "sha256").hexdigest()
    claim = {
        "uri": path.resolve().as_uri(),
        "size_bytes": path.stat().st_size,
        "sha256": digest,
    }
    return FileMessage(orjson.dumps(claim), (("content-type", b"application/json"),))
