"""Small recordings written on the spot, byte by byte where the bytes matter."""

from __future__ import annotations

import json
import struct
from pathlib import Path

MULAW_TAG, ALAW_TAG, PCM_TAG = 7, 6, 1


def wav(
    samples: bytes, tag: int = MULAW_TAG, channels: int = 2, rate: int = 8000, width: int = 1
) -> bytes:
    """A WAV file with a `LIST` chunk of odd size in front of its data."""
    block = channels * width
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * block, block, 8 * width)
    chunks = [(b"fmt ", form), (b"LIST", b"odd"), (b"data", samples)]
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def write_call(folder: Path, name: str, samples: bytes, roles: list[str] | None = None) -> Path:
    """A stereo µ-law call of 8 kHz and, with roles, the JSON beside it."""
    path = folder / f"{name}.wav"
    path.write_bytes(wav(samples))
    if roles is not None:
        path.with_suffix(".json").write_text(json.dumps({"roles": roles}))
    return path
