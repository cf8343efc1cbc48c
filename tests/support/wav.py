"""WAV files written byte by byte, so that tests can make them wrong on purpose."""

from __future__ import annotations

import struct

PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")


def chunk(name: bytes, body: bytes, declared: int | None = None) -> bytes:
    """One RIFF chunk with its padding; `declared` replaces the size in its header."""
    size = len(body) if declared is None else declared
    return name + struct.pack("<I", size) + body + b"\0" * (len(body) % 2)


def fmt(tag: int, channels: int, rate: int, bits: int, extension: bytes = b"") -> bytes:
    """A format chunk."""
    frame_bytes = channels * bits // 8
    head = struct.pack("<HHIIHH", tag, channels, rate, rate * frame_bytes, frame_bytes, bits)
    return chunk(b"fmt ", head + extension)


def extensible_fmt(tag: int, channels: int, rate: int, bits: int) -> bytes:
    """A WAVE_FORMAT_EXTENSIBLE format chunk whose sub-format is `tag`."""
    extension = struct.pack("<HHIH", 22, bits, 0, tag) + GUID_TAIL
    return fmt(EXTENSIBLE, channels, rate, bits, extension)


def riff(*chunks: bytes, declared: int | None = None) -> bytes:
    """A WAVE file of these chunks."""
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if declared is None else declared) + body
