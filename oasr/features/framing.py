"""Streaming framing: hands out samples in pieces whose features are the offline features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oasr.features.fbank import FRAME_SAMPLES, SHIFT_SAMPLES, num_frames

Samples = NDArray[np.float32]


def span_samples(frames: int) -> int:
    """How many samples `frames` consecutive frames cover."""
    return 0 if frames <= 0 else (frames - 1) * SHIFT_SAMPLES + FRAME_SAMPLES


class FrameBuffer:
    """Keeps the samples of one stream until whole frames of them have been taken.

    Frame f of the stream covers samples 160·f … 160·f + 400, however the samples came in.
    """

    def __init__(self) -> None:
        self._pieces: list[Samples] = []
        self._buffered_samples = 0
        self.first_frame = 0
        """Index of the next frame that `take` hands out."""

    @property
    def frames(self) -> int:
        """Whole frames that can be taken now."""
        return num_frames(self._buffered_samples)

    @property
    def buffered_samples(self) -> int:
        """Samples held, the first of them being sample 160 · first_frame of the stream."""
        return self._buffered_samples

    def push(self, samples: Samples) -> None:
        """Append samples (N,); the array is kept, so the caller must not change it."""
        if samples.size:
            self._pieces.append(samples)
            self._buffered_samples += samples.size

    def take(self, frames: int, advance: int | None = None) -> Samples:
        """Samples of the next `frames` frames; goes on `advance` frames (all of them by default).

        A decoding window re-reads the last frames of the one before: `advance` < `frames`.
        ValueError if fewer whole frames are there, or if `advance` is not in 1 … `frames`.
        """
        advance = frames if advance is None else advance
        if not 0 < frames <= self.frames or not 0 < advance <= frames:
            raise ValueError(f"take({frames}, {advance}) from {self.frames} frames")
        held = self._joined()
        self._pieces = [held[advance * SHIFT_SAMPLES :]]
        self._buffered_samples = self._pieces[0].size
        self.first_frame += advance
        return held[: span_samples(frames)]

    def _joined(self) -> Samples:
        if len(self._pieces) > 1:
            self._pieces = [np.concatenate(self._pieces)]
        return self._pieces[0]
