"""The last samples of a channel, kept in one array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]

_SLACK_SAMPLES = 8_192  # moving what is kept costs little when it happens this seldom


class History:
    """The last samples of a channel, addressed by their number on its media clock."""

    __slots__ = ("_buffer", "_head", "_tail", "end")

    def __init__(self, start: int) -> None:
        self._buffer: Int16Array = np.empty(0, dtype=np.int16)
        self._head = 0
        self._tail = 0
        self.end = start

    def append(self, samples: Int16Array) -> None:
        """Copy the next samples in."""
        if self._tail + len(samples) > len(self._buffer):
            self._move(len(samples))
        self._buffer[self._tail : self._tail + len(samples)] = samples
        self._tail += len(samples)
        self.end += len(samples)

    def since(self, sample: int) -> Int16Array:
        """All from `sample` on, as a view that is good until the next `append`."""
        return self._buffer[self._tail - (self.end - sample) : self._tail]

    def between(self, begin: int, end: int) -> Int16Array:
        """The samples from `begin` up to `end`, as a copy."""
        offset = self._tail - self.end
        return self._buffer[begin + offset : end + offset].copy()

    def forget_before(self, sample: int) -> None:
        """Let go of what is older than `sample`."""
        self._head = self._tail - (self.end - sample)

    def _move(self, more: int) -> None:
        kept = self._buffer[self._head : self._tail]
        buffer = np.empty(len(kept) + more + _SLACK_SAMPLES, dtype=np.int16)
        buffer[: len(kept)] = kept
        self._buffer, self._head, self._tail = buffer, 0, len(kept)
