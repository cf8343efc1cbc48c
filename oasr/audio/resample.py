"""Streaming conversion of one channel to the model's sample rate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import soxr

MODEL_RATE = 16_000

_FULL_SCALE = np.float32(1 / 32768)


class Resampler:
    """Turns int16 of one rate into float32 in [−1, 1) of another, whatever the input's split.

    After `flush` exactly `round(n · to_rate / from_rate)` samples have come out for `n` that went
    in, so a clock that counts them never drifts. One object serves one stretch of audio.
    """

    def __init__(self, from_rate: int, to_rate: int = MODEL_RATE) -> None:
        if from_rate <= 0 or to_rate <= 0:
            raise ValueError(f"rates must be positive, not {from_rate} and {to_rate}")
        self._ratio = Fraction(to_rate, from_rate)
        self._stream = (
            None
            if from_rate == to_rate
            else soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
        )
        self._samples_in = 0
        self._samples_out = 0
        self._flushed = False

    def push(self, samples: npt.NDArray[np.int16]) -> npt.NDArray[np.float32]:
        """Take the next samples (1-D) and return what is ready.

        From 8 kHz on, up to 130 ms are held back until more comes or `flush` is called. Raises
        ValueError after `flush`.
        """
        if self._flushed:
            raise ValueError("the resampler was flushed; a new stretch needs a new one")
        self._samples_in += len(samples)
        scaled = samples.astype(np.float32) * _FULL_SCALE
        if self._stream is None or not len(samples):
            return scaled
        ready: npt.NDArray[np.float32] = self._stream.resample_chunk(scaled)
        self._samples_out += len(ready)
        return ready

    def flush(self) -> npt.NDArray[np.float32]:
        """End the stretch and return the rest of it; a second call returns nothing."""
        empty = np.zeros(0, dtype=np.float32)
        if self._flushed or self._stream is None or not self._samples_in:
            self._flushed = True
            return empty
        self._flushed = True
        tail: npt.NDArray[np.float32] = self._stream.resample_chunk(empty, last=True)
        missing = round(self._samples_in * self._ratio) - self._samples_out
        self._samples_out += missing
        if missing <= len(tail):
            return tail[:missing]
        return np.pad(tail, (0, missing - len(tail)))
