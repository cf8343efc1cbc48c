"""Opens what a `file://` URI names, if it is a regular file below an allowed directory.

Links are resolved first, then the place is walked to from its root and no link is followed any
more: whoever may write there cannot lead the walk out of it between the check and the opening.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import unquote_to_bytes, urlsplit

from worker.codec import CodecError
from worker.errors import ErrorCode

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_below(uri: str, roots: Sequence[Path]) -> BinaryIO:
    """The file, at its beginning; CodecError if it is forbidden or not there."""
    path, root = _allowed(_path_of(uri), roots)
    try:
        return _walk(root, path.relative_to(root).parts)
    except OSError as error:
        raise CodecError(ErrorCode.FETCH_FAILED, f"the file: {error.strerror}") from error


def _path_of(uri: str) -> Path:
    try:
        parts = urlsplit(uri)
        raw_path = unquote_to_bytes(parts.path)
    except ValueError as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be read") from error
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
        raise CodecError(ErrorCode.URI_FORBIDDEN, "only file:// URIs of this machine are read")
    if b"\0" in raw_path or parts.query or parts.fragment:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI is no plain path")
    return Path(raw_path.decode("utf-8", "surrogateescape"))


def _allowed(path: Path, roots: Sequence[Path]) -> tuple[Path, Path]:
    """The place with all links resolved, and the root that it lies below.

    Inside or outside is decided before it is told whether the file exists.
    """
    try:
        resolved = path.resolve()
        for root in roots:
            real_root = root.resolve()
            if resolved.is_relative_to(real_root) and resolved != real_root:
                return resolved, real_root
    except (OSError, RuntimeError) as error:
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI cannot be resolved") from error
    raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI lies outside the allowed directories")


def _walk(root: Path, names: Sequence[str]) -> BinaryIO:
    directory = os.open(root, _DIRECTORY)
    try:
        for name in names[:-1]:
            deeper = os.open(name, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = deeper
        # Looked at first: the opening of a device may already do something.
        _check_regular(os.stat(names[-1], dir_fd=directory, follow_symlinks=False))
        file = os.fdopen(os.open(names[-1], _FILE, dir_fd=directory), "rb")
    finally:
        os.close(directory)
    try:
        _check_regular(os.fstat(file.fileno()))
    except CodecError:
        file.close()
        raise
    return file


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CodecError(ErrorCode.URI_FORBIDDEN, "the URI is no regular file")
