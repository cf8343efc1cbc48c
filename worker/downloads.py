"""Fetches the file behind a claim check into a temporary file, and tries again where that helps.

The file has no name from its beginning, so nothing is left of it however the process ends. What
goes wrong is told without the address: it may hold a signature.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from worker.codec import CodecError
from worker.errors import ErrorCode

READ_BYTES: Final = 1 << 16
CONNECT_TIMEOUT_S: Final = 10
READ_TIMEOUT_S: Final = 30  # without a byte
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_TRY_AGAIN: Final = frozenset((408, 425, 429))


class Temporary(Exception):
    """It may go well the next time; `pause_s` is what the server asks for."""

    def __init__(self, message: str, pause_s: float = 0.0) -> None:
        super().__init__(message)
        self.pause_s = pause_s


@dataclass(frozen=True, slots=True)
class Body:
    """What a server sends: the stated number of bytes, if it states one, and the bytes."""

    size_bytes: int | None
    parts: Iterator[bytes]


Open = Callable[[int], AbstractContextManager[Body]]  # of an attempt, which are counted from 0


@dataclass(frozen=True, slots=True)
class Downloading:
    """How to download; `now` and `sleep` are those of the clock."""

    max_bytes: int
    timeout_s: float
    temp_dir: Path | None = None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, open_body: Open) -> BinaryIO:
        """The whole body; CodecError if it is refused, too large or cannot be had in time."""
        deadline = self.now() + self.timeout_s
        attempt = 0
        while True:
            try:
                return self._attempt(open_body, attempt, deadline)
            except Temporary as error:
                attempt += 1
                pause_s = min(_FIRST_PAUSE_S * 2 ** (attempt - 1), _LONGEST_PAUSE_S)
                pause_s = max(pause_s * random.uniform(0.5, 1.0), error.pause_s)
                if self.now() + pause_s >= deadline:
                    raise CodecError(
                        ErrorCode.FETCH_UNAVAILABLE, f"{error} (tried {attempt} times)"
                    ) from error
                self.sleep(pause_s)

    def _attempt(self, open_body: Open, attempt: int, deadline: float) -> BinaryIO:
        try:
            file = cast(BinaryIO, tempfile.TemporaryFile(dir=self.temp_dir))  # noqa: SIM115 - returned
        except OSError as error:
            raise Temporary(f"the temporary directory: {error.strerror}") from error
        try:
            with open_body(attempt) as body:
                self._spool(body, file, deadline)
        except BaseException:
            file.close()
            raise
        return file

    def _spool(self, body: Body, file: BinaryIO, deadline: float) -> None:
        size_bytes = 0
        self._check_size(body.size_bytes or 0)
        for part in body.parts:
            size_bytes += len(part)
            self._check_size(size_bytes)
            if self.now() > deadline:
                raise Temporary("the download takes too long")
            try:
                file.write(part)
            except OSError as error:
                raise Temporary(f"the temporary directory: {error.strerror}") from error
        if body.size_bytes is not None and size_bytes < body.size_bytes:
            raise Temporary("the download broke off")

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self.max_bytes:
            raise CodecError(
                ErrorCode.VALUE_TOO_LARGE, f"the file has more than {self.max_bytes} bytes"
            )


def check_status(status: int, pause_s: float = 0.0) -> None:
    """Raises Temporary or CodecError for an answer that is no file."""
    if 200 <= status < 300 and status not in (204, 206):
        return
    if status >= 500 or status in _TRY_AGAIN:
        raise Temporary(f"the server answered {status}", min(pause_s, _LONGEST_PAUSE_S))
    raise CodecError(ErrorCode.FETCH_FAILED, f"the server answered {status}")
