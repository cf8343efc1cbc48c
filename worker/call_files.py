"""Recorded calls as a producer sends them: raw interleaved samples with the names of its speakers.

A G.711 recording keeps its very bytes, as a telephone switch would have sent them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oasr.audio import g711
from oasr.audio.containers import read_blocks
from oasr.audio.pcm import Encoding, Int16Array
from worker.file_jobs import SUFFIXES

_G711_TAGS = {7: Encoding.MULAW, 6: Encoding.ALAW}


@dataclass(frozen=True, slots=True)
class CallAudio:
    """One call: `data` holds whole frames, channels interleaved, in `encoding`."""

    data: bytes
    encoding: Encoding
    sample_rate: int
    channels: int
    roles: tuple[str, ...] = ()

    @property
    def frames(self) -> int:
        """Samples of each channel."""
        return len(self.data) // (self.channels * self.encoding.sample_bytes)

    @property
    def duration_s(self) -> float:
        """Length of the call."""
        return self.frames / self.sample_rate

    def piece(self, start_frame: int, frames: int, channel: int | None = None) -> bytes:
        """The bytes of some frames, of one channel or of all; shorter at the call's end."""
        width = self.encoding.sample_bytes
        frame_bytes = width * self.channels
        piece = self.data[start_frame * frame_bytes : (start_frame + frames) * frame_bytes]
        if channel is None:
            return piece
        table = np.frombuffer(piece, dtype=np.uint8).reshape(-1, self.channels, width)
        return table[:, channel].tobytes()


def find_audio(paths: list[Path]) -> list[Path]:
    """The named files and, in folders, everything that looks like audio, sorted.

    Raises FileNotFoundError for a path that is not there or a folder without audio.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
            if not inside:
                raise FileNotFoundError(f"no recordings in {path}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise FileNotFoundError(f"no such file or folder: {path}")
    return found


def read_call(path: Path, encoding: Encoding | None = None) -> CallAudio:
    """The call in a recording, in `encoding` or else as near to the file as possible.

    Roles come from `"roles"` of the JSON file beside it, where there is one. Raises AudioError.
    """
    raw = _g711_wav(path.read_bytes()) if path.suffix.lower() == ".wav" else None
    if raw is not None and encoding in (None, raw.encoding):
        audio = raw
    else:
        audio = _decoded(path, encoding or Encoding.PCM_S16LE)
    return CallAudio(
        audio.data, audio.encoding, audio.sample_rate, audio.channels, _roles(path, audio.channels)
    )


def _decoded(path: Path, encoding: Encoding) -> CallAudio:
    info, blocks = read_blocks(path)
    data = b"".join(_encode(block.reshape(-1), encoding) for block in blocks)
    return CallAudio(data, encoding, info.sample_rate, info.channels)


def _encode(samples: Int16Array, encoding: Encoding) -> bytes:
    match encoding:
        case Encoding.MULAW:
            return g711.linear_to_mulaw(samples)
        case Encoding.ALAW:
            return g711.linear_to_alaw(samples)
        case Encoding.PCM_S16LE:
            return samples.astype("<i2").tobytes()
        case _:
            raise ValueError(f"calls are not played as {encoding.value}")


def _roles(path: Path, channels: int) -> tuple[str, ...]:
    try:
        beside = json.loads(path.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return ()
    roles = beside.get("roles") if isinstance(beside, dict) else None
    if not isinstance(roles, list) or len(roles) != channels:
        return ()
    return tuple(str(role) for role in roles)


def _g711_wav(content: bytes) -> CallAudio | None:
    """The samples of a G.711 WAV as they stand in it; None for any other file."""
    layout: tuple[Encoding, int, int] | None = None
    for name, body in _riff_chunks(content):
        if name == b"fmt " and len(body) >= 16:
            tag, channels, sample_rate = struct.unpack_from("<HHI", body)
            if tag not in _G711_TAGS or not channels or not sample_rate:
                return None
            layout = _G711_TAGS[tag], sample_rate, channels
        elif name == b"data" and layout is not None:
            encoding, sample_rate, channels = layout
            whole = len(body) - len(body) % channels
            return CallAudio(bytes(body[:whole]), encoding, sample_rate, channels)
    return None


def _riff_chunks(content: bytes) -> Iterator[tuple[bytes, memoryview]]:
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return
    view, at = memoryview(content), 12
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        yield name, view[at + 8 : at + 8 + size]
        at += 8 + size + size % 2
