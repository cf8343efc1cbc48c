"""Recordings of every kind that is read, damaged: cut off, flipped, lying about sizes, spliced."""

from __future__ import annotations

import functools
import random
from typing import Final, Literal

import numpy as np

from oasr.audio.containers import read_blocks
from oasr.errors import AudioError
from tests.support.encoders import encoded
from tests.support.signals import speech
from tests.support.wav import MULAW, PCM, chunk, extensible_fmt, fmt, riff

# A damaged file may promise days: whoever reads one stops at a limit, and so do we.
MOST_FRAMES: Final = 4_000_000
_SECONDS: Final = 0.4
_ENCODED: Final = (
    *(("wav", "pcm_s16le"), ("wav", "pcm_u8"), ("wav", "pcm_s24le"), ("wav", "pcm_f32le")),
    *(("wav", "pcm_mulaw"), ("wav", "pcm_alaw"), ("w64", "pcm_s16le"), ("flac", "flac")),
    *(("mp3", "libmp3lame"), ("ipod", "aac"), ("adts", "aac"), ("ogg", "libopus")),
    *(("webm", "libopus"), ("matroska", "pcm_s16le"), ("aiff", "pcm_s16be"), ("caf", "pcm_s16be")),
    *(("au", "pcm_mulaw"), ("mp4", "aac"), ("amr", "libopencore_amrnb")),
)
_SIZES: Final = (0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Small recordings, whole."""
    found = []
    for container, codec in _ENCODED:
        rate = 8_000 if codec == "libopencore_amrnb" or container in ("wav", "au") else 16_000
        samples = speech(_SECONDS, rate, seed=3).reshape(-1, 1)
        bit_rate = 12_200 if codec == "libopencore_amrnb" else None
        found.append(encoded(samples, rate, container, codec, bit_rate=bit_rate))
    data = speech(_SECONDS, 8_000, seed=4).astype("<i2").tobytes()
    found.append(riff(fmt(PCM, 2, 8_000, 16), chunk(b"LIST", b"INFOodd"), chunk(b"data", data)))
    found.append(riff(extensible_fmt(MULAW, 1, 8_000, 8), chunk(b"data", data)))
    return tuple(found)


def damaged(rng: random.Random) -> bytes:
    """One of the recordings with some damage, most of it near its beginning."""
    data = bytearray(rng.choice(seeds()))
    for _ in range(rng.choice((1, 1, 2, 3, 10))):
        _damage(data, rng)
    return bytes(data)


def _damage(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    act = rng.randrange(8)
    if act == 0:
        del data[at:]
    elif act == 1:
        for _ in range(rng.choice((1, 4, 50))):
            place = _place(data, rng)
            if place < len(data):
                data[place] ^= 1 << rng.randrange(8)
    elif act == 2:
        order: Literal["little", "big"] = "little" if rng.random() < 0.5 else "big"
        width = rng.choice((2, 4, 8))
        data[at : at + width] = (rng.choice(_SIZES) % (1 << 8 * width)).to_bytes(width, order)
    elif act == 3:
        data[at : at + rng.choice((1, 8, 100))] = rng.randbytes(rng.choice((0, 1, 8, 100)))
    elif act == 4:
        data[at:at] = data[_place(data, rng) :][: rng.choice((4, 64, 2_000))]
    elif act == 5:
        other = rng.choice(seeds())
        data[at:] = other[rng.randrange(len(other)) :]
    elif act == 6:
        del data[at : at + rng.choice((1, 2, 64, 2_000))]
    else:
        data[at : at + rng.choice((16, 400))] = b"\0" * rng.choice((16, 400))


def _place(data: bytearray, rng: random.Random) -> int:
    """A place in the data; one of five in its head."""
    return rng.randrange(1 + (min(len(data), 120) if rng.random() < 0.2 else len(data)))


def check_file(data: bytes) -> str:
    """What becomes of a file: its kind of sound, or the code of its refusal."""
    try:
        info, blocks = read_blocks(data, 16_384)
        frames = 0
        for block in blocks:
            assert block.dtype == np.int16
            assert block.ndim == 2
            assert 1 <= len(block) <= 16_384
            assert block.shape[1] == info.channels
            frames += len(block)
            if frames > MOST_FRAMES:
                return "endless"
    except AudioError as error:
        return error.code
    assert 1_000 <= info.sample_rate <= 384_000
    assert 1 <= info.channels <= 16
    return "broken off" if "truncated" in info.warnings else "read"
