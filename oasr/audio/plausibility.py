"""Whether samples are what their encoding says, by how smooth they are.

Sound of voices is smooth: at telephone rates neighbouring samples are alike. The same bytes read by
another encoding are close to noise. `roughness` is the energy of the differences between neighbours
over the energy of the samples, 2 for white noise and about a quarter for speech at 8 kHz. Samples
are suspect when they are rough, and their bytes much smoother if read in another way; noise is
rough in every reading and so never suspect. The sums are exact, so the verdict never varies.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from oasr.audio import g711
from oasr.audio.pcm import Encoding

Int16Array = npt.NDArray[np.int16]

HEARD_SAMPLES: Final = 16_000  # two seconds at telephone rates
LEAST_SAMPLES: Final = 4_000
# In quarters: speech at 8 kHz reaches 0.66, with less than 1 in 100 above 0.57; misread speech has
# 2.6 at most, and what is rougher is a high tone.
_ROUGH_QUARTERS: Final = (2, 11)
_SMOOTHER_HALVES: Final = 5  # half as many times; rightly declared speech stays below 1.7 times
_LEAST_POWER: Final = 64 * 64  # of either reading: what hardly moves is no voice


class EncodingCheck:
    """Hears the beginning of a stretch of one channel, in any pieces, and judges it once."""

    def __init__(self, declared: Encoding | None) -> None:
        self.suspect: Encoding | None = None  # what it should have been declared as
        self._declared = declared
        self._parts: list[Int16Array] = []
        self._missing = 0 if declared is None or declared is Encoding.PCM_F32LE else HEARD_SAMPLES

    @property
    def listens(self) -> bool:
        """Whether more samples may change the verdict."""
        return self._missing > 0

    def hear(self, samples: Int16Array) -> None:
        """Take the next samples; without effect once enough were heard."""
        if self._missing > 0:
            self._parts.append(samples[: self._missing].copy())
            self._missing -= len(self._parts[-1])
            if not self._missing:
                self._judge()

    def finish(self) -> None:
        """The stretch is over; judge it, if it was long enough."""
        if self._missing > 0 and HEARD_SAMPLES - self._missing >= LEAST_SAMPLES:
            self._judge()
        self._missing = 0
        self._parts.clear()

    def _judge(self) -> None:
        assert self._declared is not None
        self.suspect = likely_encoding(np.concatenate(self._parts), self._declared)
        self._missing = 0
        self._parts.clear()


def likely_encoding(samples: Int16Array, declared: Encoding) -> Encoding | None:
    """The encoding that the bytes behind decoded samples rather have; None if they are plausible.

    `pcm_s16le` stands for both byte orders where single bytes were declared. Float samples are not
    judged: their bytes cannot be told from the decoded samples.
    """
    energy, differences = _energies(samples)
    low, high = _ROUGH_QUARTERS
    if (
        energy < _LEAST_POWER * len(samples) ** 2
        or not low * energy <= 4 * differences < high * energy
    ):
        return None
    smoother: list[tuple[bool, Fraction, Encoding]] = []
    for encoding, other in _other_readings(samples, declared):
        other_energy, other_differences = _energies(other)
        if other_energy < _LEAST_POWER * len(other) ** 2:
            continue
        if 2 * differences * other_energy < _SMOOTHER_HALVES * other_differences * energy:
            continue
        # Where swapping the bytes is enough, what the lower ones alone look like is chance.
        narrower = encoding.sample_bytes < declared.sample_bytes
        smoother.append((narrower, Fraction(other_differences, other_energy), encoding))
    return min(smoother)[2] if smoother else None


def _energies(samples: Int16Array) -> tuple[int, int]:
    """The energies of samples without their mean and of their differences, on one scale.

    Sums of so few squares of 16 bits are whole numbers below 2^53: doubles add them exactly, in any
    order, and four times as fast as integers.
    """
    wide = samples.astype(np.float64)
    count, total = len(wide), int(wide.sum())
    steps = wide[1:] - wide[:-1]
    return count * int(wide @ wide) - total * total, count * int(steps @ steps)


def _other_readings(
    samples: Int16Array, declared: Encoding
) -> Iterator[tuple[Encoding, Int16Array]]:
    """The bytes behind decoded samples as other encodings would decode them."""
    if declared in (Encoding.PCM_S16LE, Encoding.PCM_S16BE):
        little = declared is Encoding.PCM_S16LE
        data = (samples if little else samples.byteswap()).astype("<i2", copy=False).tobytes()
        yield (Encoding.PCM_S16BE if little else Encoding.PCM_S16LE), samples.byteswap()
        # Every second byte: two channels of one byte each, read as one of two bytes.
        for reading in (data, data[0::2]):
            yield Encoding.MULAW, g711.mulaw_to_linear(reading)
            yield Encoding.ALAW, g711.alaw_to_linear(reading)
        return
    data = _bytes_of(samples, declared)
    if declared is not Encoding.MULAW:
        yield Encoding.MULAW, g711.mulaw_to_linear(data)
    if declared is not Encoding.ALAW:
        yield Encoding.ALAW, g711.alaw_to_linear(data)
    for first in (0, 1):  # the upper bytes of 16-bit samples, whichever they are
        upper = np.frombuffer(data, dtype=np.int8)[first::2].astype(np.int16)
        yield Encoding.PCM_S16LE, upper * np.int16(256)


def _bytes_of(samples: Int16Array, declared: Encoding) -> bytes:
    if declared is Encoding.MULAW:
        return g711.linear_to_mulaw(samples)
    if declared is Encoding.ALAW:
        return g711.linear_to_alaw(samples)
    return ((samples >> 8) + 128).astype(np.uint8).tobytes()
