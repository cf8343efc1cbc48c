"""What a file job may read: bytes in the message, or a file under an allowed directory."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from worker.codec import CodecError, FileJob
from worker.errors import ErrorCode

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What reading a file may cost."""

    roots: Sequence[Path]
    max_bytes: int
    max_duration_s: int


def locate(job: FileJob, limits: FileLimits) -> Path | bytes:
    """The file or the bytes of a job, checked against its claims; CodecError if refused.

    Reads the whole file once where the job states a hash.
    """
    if job.audio is not None:
        _check_size(job, len(job.audio), limits)
        _check_hash(job, hashlib.sha256(job.audio))
        return job.audio
    path = _allowed_path(job.uri or "", limits.roots)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI is no regular file")
        _check_size(job, status.st_size, limits)
        if job.sha256 is not None:
            _check_hash(job, _hash_of(path))
    except OSError as error:
        raise CodecError(ErrorCode.FETCH_FAILED, f"the file: {error.strerror}") from error
    return path


def _allowed_path(uri: str, roots: Sequence[Path]) -> Path:
    """The path that a `file://` URI names, links resolved, if it lies under a root."""
    try:
        parts = urlsplit(uri)
        raw_path = unquote_to_bytes(parts.path)
    except ValueError as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be read") from error
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
        raise CodecError(ErrorCode.URI_FORBIDDEN, "only file:// URIs of this machine are read")
    if b"\0" in raw_path or parts.query or parts.fragment:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI is no plain path")
    # Inside or outside is decided before it is told whether the file exists.
    path = Path(raw_path.decode("utf-8", "surrogateescape"))
    try:
        resolved = path.resolve()
        allowed = any(resolved.is_relative_to(root.resolve()) for root in roots)
    except (OSError, RuntimeError) as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be resolved") from error
    if not allowed:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI lies outside the allowed directories")
    return resolved


def _check_size(job: FileJob, size_bytes: int, limits: FileLimits) -> None:
    if size_bytes > limits.max_bytes:
        raise CodecError(ErrorCode.VALUE_TOO_LARGE, f"the file has {size_bytes} bytes")
    if job.size_bytes is not None and job.size_bytes != size_bytes:
        raise CodecError(ErrorCode.SIZE_MISMATCH, f"the file has {size_bytes} bytes")


def _check_hash(job: FileJob, found: hashlib._Hash) -> None:
    if job.sha256 is not None and found.hexdigest() != job.sha256:
        raise CodecError(ErrorCode.HASH_MISMATCH, "the file has another SHA-256")


def _hash_of(path: Path) -> hashlib._Hash:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            found.update(block)
    return found
