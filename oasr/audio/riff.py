"""Checks the chunks of a WAV file before a library reads it, and mends sizes left at zero."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from oasr.errors import AudioError

_CODE = "container_invalid"
_TRUNCATED = "truncated"
_SIZE_MISMATCH = "header_size_mismatch"
_UNKNOWN_SIZE = 0x7FFF_0000  # writers to a pipe put this much or more, up to 0xFFFFFFFF
_MOST_CHUNKS = 1_000
_LIST_TYPE_BYTES = 4


@dataclass(frozen=True, slots=True)
class WavLayout:
    """What the header of a WAV file says wrongly; `patches` are (offset, bytes) that mend it.

    `frames` is the number of whole blocks of its format in the data that is there.
    """

    frames: int
    warnings: tuple[str, ...] = ()
    patches: tuple[tuple[int, bytes], ...] = ()


@dataclass(slots=True)
class _Chunks:
    data_offset: int = -1
    declared_bytes: int = 0
    long_bytes: int | None = None  # size of the data chunk according to ds64
    frame_bytes: int = 0
    seen: set[bytes] = field(default_factory=set)
    patches: list[tuple[int, bytes]] = field(default_factory=list)


def check_wav(file: BinaryIO) -> WavLayout:
    """Compare the sizes that a RIFF or RF64 file states with the bytes that are there.

    Reads chunk headers alone. Raises AudioError `container_invalid` without a format and a data
    chunk.
    """
    file_bytes = file.seek(0, os.SEEK_END)
    chunks = _walk(file, file_bytes)
    layout = _layout(file, chunks, file_bytes)
    return replace(layout, patches=(*layout.patches, *chunks.patches))


def _layout(file: BinaryIO, chunks: _Chunks, file_bytes: int) -> WavLayout:
    if b"fmt " not in chunks.seen or b"data" not in chunks.seen or not chunks.frame_bytes:
        raise AudioError(_CODE, "the WAV file has no format or no data chunk")
    declared, present = chunks.declared_bytes, file_bytes - chunks.data_offset
    if declared == 0xFFFF_FFFF and chunks.long_bytes is not None:
        declared = chunks.long_bytes
    if declared > present:
        code = _SIZE_MISMATCH if declared >= _UNKNOWN_SIZE else _TRUNCATED
        return WavLayout(present // chunks.frame_bytes, (code,))
    after = chunks.data_offset + declared
    if present - declared > 1 and not _is_chunk(file, after, file_bytes):
        if declared:
            return WavLayout(declared // chunks.frame_bytes, (_SIZE_MISMATCH,))
        size = min(present, 0xFFFF_FFFE).to_bytes(4, "little")
        patch = (chunks.data_offset - 4, size)
        return WavLayout(present // chunks.frame_bytes, (_SIZE_MISMATCH,), (patch,))
    if declared % chunks.frame_bytes:
        return WavLayout(declared // chunks.frame_bytes, (_TRUNCATED,))
    return WavLayout(declared // chunks.frame_bytes)


def _walk(file: BinaryIO, file_bytes: int) -> _Chunks:
    file.seek(8)
    if file.read(4) != b"WAVE":
        raise AudioError(_CODE, "a RIFF file, but not a WAV file")
    chunks = _Chunks()
    offset = 12
    for _ in range(_MOST_CHUNKS):
        file.seek(offset)
        head = file.read(8)
        if len(head) < 8:
            break
        name, size = head[:4], int.from_bytes(head[4:], "little")
        chunks.seen.add(name)
        if name == b"data":
            chunks.data_offset, chunks.declared_bytes = offset + 8, size
            break
        body = file.read(min(size, 16))
        if name == b"fmt " and len(body) >= 14:
            chunks.frame_bytes = int.from_bytes(body[12:14], "little")
        elif name == b"ds64" and len(body) >= 16:
            chunks.long_bytes = int.from_bytes(body[8:16], "little")
        elif name == b"LIST" and size < _LIST_TYPE_BYTES:
            # a list of no type, for which FFmpeg refuses the file
            chunks.patches.append((offset, b"JUNK"))
        offset += 8 + size + size % 2
        if offset >= file_bytes:
            break
    return chunks


def _is_chunk(file: BinaryIO, offset: int, file_bytes: int) -> bool:
    """Whether a chunk that fits the file begins at `offset`, or after a byte of padding."""
    for begin in (offset, offset + 1):
        file.seek(begin)
        head = file.read(8)
        size = int.from_bytes(head[4:], "little")
        if len(head) == 8 and head[:4].isascii() and head[:4].decode().isprintable():
            return begin + 8 + size <= file_bytes + 1
    return False


class PatchedFile(io.RawIOBase):
    """A seekable file that reads like another one with some of its bytes replaced."""

    def __init__(self, file: BinaryIO, patches: tuple[tuple[int, bytes], ...]) -> None:
        self._file = file
        self._patches = patches

    def readable(self) -> bool:
        """It can be read and nothing else."""
        return True

    def seekable(self) -> bool:
        """It can seek where the other file can."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to `offset` as the other file would."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The offset of the other file."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, patches applied."""
        begin = self._file.tell()
        data = bytearray(self._file.read(size))
        for offset, replacement in self._patches:
            for index, value in enumerate(replacement, offset - begin):
                if 0 <= index < len(data):
                    data[index] = value
        return bytes(data)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill `buffer` as far as the file goes and return the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
