"""Raw sample encodings and their way to 16-bit linear PCM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from oasr.audio import g711

Int16Array = npt.NDArray[np.int16]
Bytes = bytes | bytearray | memoryview


class Encoding(StrEnum):
    """How the samples of a headerless stream are written; the values are the wire names."""

    PCM_S16LE = "pcm_s16le"
    PCM_S16BE = "pcm_s16be"
    PCM_F32LE = "pcm_f32le"
    PCM_U8 = "pcm_u8"
    MULAW = "mulaw"
    ALAW = "alaw"

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample of one channel."""
        return _SAMPLE_BYTES[self]


_SAMPLE_BYTES = {
    Encoding.PCM_S16LE: 2,
    Encoding.PCM_S16BE: 2,
    Encoding.PCM_F32LE: 4,
    Encoding.PCM_U8: 1,
    Encoding.MULAW: 1,
    Encoding.ALAW: 1,
}


def decode(data: Bytes, encoding: Encoding) -> Int16Array:
    """Decode raw bytes to a new 1-D int16 array, channels still interleaved.

    Raises ValueError if `data` ends inside a sample: the caller carries such bytes over to the
    next piece of the stream.
    """
    if len(data) % encoding.sample_bytes:
        raise ValueError(f"{len(data)} bytes are no whole number of {encoding.value} samples")
    return _DECODERS[encoding](data)


def float_to_int16(samples: npt.NDArray[np.floating]) -> Int16Array:
    """Round floats of the range [−1, 1) to int16; louder ones are clipped, NaN becomes 0."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is data here, not a fault
        scaled = np.rint(samples.astype(np.float64) * 32768.0)
    finite = np.nan_to_num(scaled, copy=False, nan=0.0, posinf=32767.0, neginf=-32768.0)
    linear: Int16Array = np.clip(finite, -32768, 32767).astype(np.int16)
    return linear


def _centred(data: Bytes) -> Int16Array:
    samples: Int16Array = np.frombuffer(data, dtype=np.uint8).astype(np.int16)
    samples -= 128
    samples *= 256
    return samples


_DECODERS: Final[Mapping[Encoding, Callable[[Bytes], Int16Array]]] = {
    Encoding.PCM_S16LE: lambda data: np.frombuffer(data, dtype="<i2").astype(np.int16),
    Encoding.PCM_S16BE: lambda data: np.frombuffer(data, dtype=">i2").astype(np.int16),
    Encoding.PCM_F32LE: lambda data: float_to_int16(np.frombuffer(data, dtype="<f4")),
    Encoding.PCM_U8: _centred,
    Encoding.MULAW: g711.mulaw_to_linear,
    Encoding.ALAW: g711.alaw_to_linear,
}


def split_channels(samples: Int16Array, channels: int) -> list[Int16Array]:
    """Split interleaved samples into one contiguous array per channel.

    Raises ValueError if `samples` ends inside a sample frame.
    """
    if channels < 1:
        raise ValueError(f"channels must be at least 1, not {channels}")
    if len(samples) % channels:
        raise ValueError(f"{len(samples)} samples are no whole number of {channels}-channel frames")
    if channels == 1:
        return [samples]
    return list(np.ascontiguousarray(samples.reshape(-1, channels).T))
