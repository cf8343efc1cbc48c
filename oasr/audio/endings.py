"""Whether a file ends where its container says: what FFmpeg does not tell.

These look at the frame of the container alone; damage inside shows when the audio is decoded.
"""

from __future__ import annotations

import os
from typing import BinaryIO, Final

_OGG_TAIL_BYTES: Final = 1 << 17  # a page has at most 65 307
_OGG_HEADER_BYTES: Final = 27
_OGG_LAST: Final = 4
_SEGMENT: Final = b"\x18\x53\x80\x67"
_MPEG_HEAD_BYTES: Final = 4_096


def ogg_breaks_off(file: BinaryIO) -> bool:
    """Whether the last page is not whole or is not marked as the last of its stream."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _OGG_TAIL_BYTES))
    tail = file.read(_OGG_TAIL_BYTES)
    at = tail.rfind(b"OggS")
    header = tail[at : at + _OGG_HEADER_BYTES]
    if at < 0 or len(header) < _OGG_HEADER_BYTES:
        return True
    lacing = tail[at + _OGG_HEADER_BYTES :][: header[26]]
    end = at + _OGG_HEADER_BYTES + header[26] + sum(lacing)
    return not header[5] & _OGG_LAST or len(lacing) < header[26] or end > len(tail)


def matroska_breaks_off(file: BinaryIO) -> bool:
    """Whether the segment of a Matroska or WebM file states more bytes than there are."""
    size = file.seek(0, os.SEEK_END)
    file.seek(4)
    header_bytes, _ = _vint(file)
    if header_bytes is None:
        return False
    file.seek(header_bytes, os.SEEK_CUR)
    if file.read(4) != _SEGMENT:
        return False
    segment_bytes, _ = _vint(file)
    return segment_bytes is not None and file.tell() + segment_bytes > size


def _vint(file: BinaryIO) -> tuple[int | None, int]:
    """A number of EBML and its length; None for the value that means unknown."""
    first = file.read(1)
    if not first or not first[0]:
        return None, 1
    length = 9 - first[0].bit_length()
    rest = file.read(length - 1)
    value = int.from_bytes(bytes([first[0] & (0xFF >> length)]) + rest, "big")
    unknown = (1 << 7 * length) - 1
    return (None if value == unknown or len(rest) < length - 1 else value), length


def mp3_counts_its_frames(file: BinaryIO) -> bool:
    """Whether the first frame of an MP3 holds the number of all frames."""
    file.seek(0)
    head = file.read(_MPEG_HEAD_BYTES)
    if head.startswith(b"ID3") and len(head) >= 10:
        size = 0
        for byte in head[6:10]:
            size = size << 7 | byte & 0x7F
        file.seek(10 + size)
        head = file.read(_MPEG_HEAD_BYTES)
    return any(tag in head[:256] for tag in (b"Xing", b"Info", b"VBRI"))
