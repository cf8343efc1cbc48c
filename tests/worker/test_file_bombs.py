"""Small files that decode, or claim to decode, to days: refused early and in little memory."""

from __future__ import annotations

import io
import struct
import tracemalloc
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from oasr.audio.segmenter import SegmenterConfig
from tests.support.encoders import encoded, written
from tests.support.wav import PCM, chunk, fmt
from worker.codec import FileJob
from worker.errors import ErrorCode
from worker.file_reader import Failed, Reading
from worker.file_source import FileLimits

LIMIT_S = 60
RATE = 8_000
SILENCE = np.zeros((5 * 60 * RATE, 1), np.int16)
MOST_MEMORY_BYTES = 16 << 20
MOST_READ_S = LIMIT_S + 5


def silent_flac() -> bytes:
    """5 minutes of silence in some kB."""
    return written(SILENCE, RATE, "FLAC", "PCM_16")


def flac_of(frames: int) -> bytes:
    """The same with another number of samples in its header; 0 stands for an unknown one."""
    data = bytearray(silent_flac())
    # STREAMINFO begins at 8: 36 bits behind rate, channels and sample size.
    high, *_ = struct.unpack_from(">B", data, 21)
    data[21] = high & 0xF0 | frames >> 32
    struct.pack_into(">I", data, 22, frames & 0xFFFF_FFFF)
    return bytes(data)


def far_apart(packets: int, apart_s: int) -> bytes:
    """A WebM of packets of 20 ms, each a long time behind the one before."""
    output = io.BytesIO()
    with av.open(output, "w", format="webm") as container:
        stream: Any = container.add_stream("libopus", rate=48_000, layout="mono")
        made = []
        for number in range(packets + 4):
            frame = av.AudioFrame.from_ndarray(
                np.zeros((1, 960), np.int16), format="s16", layout="mono"
            )
            frame.sample_rate, frame.pts = 48_000, 960 * number
            frame.time_base = Fraction(1, 48_000)
            made += stream.encode(frame)
        for number, packet in enumerate(made[:packets]):
            packet.pts = packet.dts = round(number * apart_s / packet.time_base)
            container.mux(packet)
    return output.getvalue()


def long_m4a() -> bytes:
    """Tables of an M4A of 5 minutes, its audio a few kB."""
    return encoded(SILENCE, RATE, "ipod", "aac", {"movflags": "faststart"}, 8_000)


def rf64_of(frames: int) -> bytes:
    """A WAV whose long sizes claim more than there is on earth."""
    sizes = struct.pack("<QQQI", 2 * frames + 80, 2 * frames, frames, 0)
    body = b"WAVE" + chunk(b"ds64", sizes) + fmt(PCM, 1, RATE, 16)
    open_ended = b"data" + b"\xff" * 4 + bytes(4 * LIMIT_S * RATE)
    return b"RF64" + b"\xff" * 4 + body + open_ended


BOMBS = [
    ("a FLAC of silence", silent_flac),
    ("a FLAC that claims 99 days", lambda: flac_of((1 << 36) - 1)),
    ("a FLAC of unknown length", lambda: flac_of(0)),
    ("a WebM with gaps of 59 minutes", lambda: far_apart(1_000, 3_540)),
    ("a WebM with gaps of 50 seconds", lambda: far_apart(1_000, 50)),
    ("an M4A of silence", long_m4a),
    ("an RF64 that claims years", lambda: rf64_of(1 << 50)),
]


class Counting(Reading):
    """Counts blocks, of which each has at most 16 384 frames."""

    blocks = 0

    def _reached(self, phase: object) -> None:
        del phase
        self.blocks += 1


@pytest.mark.parametrize(("name", "make"), BOMBS, ids=[name for name, _ in BOMBS])
def test_a_small_file_of_days_is_refused_at_the_limit_in_little_memory(name: str, make) -> None:
    data = make()
    assert len(data) < 2 << 20, name
    limits = FileLimits((), 1 << 24, LIMIT_S)
    reading = Counting(FileJob("f", data, None), limits, SegmenterConfig())
    tracemalloc.start()

    reading.read()

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    items = []
    while (item := reading.take()) is not None:
        items.append(item)
    assert isinstance(items[-1], Failed)
    assert items[-1].code is ErrorCode.AUDIO_TOO_LONG
    assert peak_bytes < MOST_MEMORY_BYTES
    # Packets of 20 ms at the shortest; silence in the place of gaps comes in whole blocks.
    assert reading.blocks <= MOST_READ_S * 50


def test_time_stamps_hours_apart_are_broken_and_no_days_of_silence() -> None:
    limits = FileLimits((), 1 << 24, LIMIT_S)
    reading = Reading(FileJob("f", far_apart(100, 4_000), None), limits, SegmenterConfig())

    reading.read()

    items = []
    while (item := reading.take()) is not None:
        items.append(item)
    assert items[-1].duration_samples < 48_000 * LIMIT_S  # type: ignore[union-attr]
    assert items[-1].warnings == ("gap",)  # type: ignore[union-attr]
