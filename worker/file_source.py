"""What a file job reads: bytes in the message, or a file that a claim check names."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from worker.codec import CodecError, FileJob
from worker.downloads import Downloading
from worker.errors import ErrorCode
from worker.https_download import HttpsRules, open_https
from worker.local_files import open_below
from worker.s3_download import open_s3

_READ_BYTES = 1 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What reading a file may cost, and from where files may come."""

    roots: tuple[Path, ...]
    max_bytes: int
    max_duration_s: int
    decode_timeout_s: int = 1_800  # in all
    fetch_timeout_s: int = 600  # in all
    stall_timeout_s: int = 60  # without any progress
    max_memory_bytes: int = 1 << 30  # of a process, over what it has before its first file
    temp_dir: Path | None = None  # None: that of the system
    https: HttpsRules = field(default_factory=HttpsRules)
    s3_buckets: tuple[str, ...] = ()


def open_source(job: FileJob, limits: FileLimits) -> BinaryIO:
    """The recording of a job, at its beginning, checked against its claims.

    CodecError if it is refused or cannot be had. Reads the whole file once where the job states a
    hash.
    """
    if job.audio is not None:
        file: BinaryIO = io.BytesIO(job.audio)
    else:
        file = _open_uri(job.uri or "", limits)
    try:
        _check(file, job, limits)
    except BaseException:
        file.close()
        raise
    return file


def _open_uri(uri: str, limits: FileLimits) -> BinaryIO:
    if _CONTROL.search(uri):
        # What parses URIs leaves some of them out without a word.
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI has control characters")
    try:
        scheme = urlsplit(uri).scheme.lower()
    except ValueError as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be read") from error
    if scheme == "file":
        return open_below(uri, limits.roots)
    download = Downloading(limits.max_bytes, limits.fetch_timeout_s, limits.temp_dir)
    if scheme in ("https", "http"):  # the latter to be refused by name
        return download.fetch(lambda attempt: open_https(uri, attempt, limits.https))
    if scheme == "s3":
        return download.fetch(lambda _attempt: open_s3(uri, limits.s3_buckets))
    raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI has a scheme that is not read")


def _check(file: BinaryIO, job: FileJob, limits: FileLimits) -> None:
    try:
        size_bytes = file.seek(0, io.SEEK_END)
        if size_bytes > limits.max_bytes:
            raise CodecError(ErrorCode.VALUE_TOO_LARGE, f"the file has {size_bytes} bytes")
        if job.size_bytes is not None and job.size_bytes != size_bytes:
            raise CodecError(ErrorCode.SIZE_MISMATCH, f"the file has {size_bytes} bytes")
        if job.sha256 is not None and _hash_of(file) != job.sha256:
            raise CodecError(ErrorCode.HASH_MISMATCH, "the file has another SHA-256")
        file.seek(0)
    except OSError as error:
        raise CodecError(ErrorCode.FETCH_FAILED, f"the file: {error.strerror}") from error


def _hash_of(file: BinaryIO) -> str:
    found = hashlib.sha256()
    file.seek(0)
    while block := file.read(_READ_BYTES):
        found.update(block)
    return found.hexdigest()
