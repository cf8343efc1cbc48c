"""Which samples a decoding window needs: pure integer arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from oasr.features.fbank import SAMPLE_RATE, SHIFT_SAMPLES, num_frames
from oasr.features.framing import span_samples


@dataclass(frozen=True, slots=True)
class WindowGeometry:
    """Decoding windows of `chunk_size` encoder frames; windows count from the first sample."""

    chunk_size: int
    subsampling_rate: int
    right_context: int
    padding_ms: int

    @property
    def window_frames(self) -> int:
        """Feature frames of one window."""
        return (self.chunk_size - 1) * self.subsampling_rate + self.right_context + 1

    @property
    def stride_frames(self) -> int:
        """Feature frames from one window's start to the next."""
        return self.chunk_size * self.subsampling_rate

    def encoder_frames(self, samples: int) -> int:
        """Encoder frames of `samples` without any padding."""
        beyond_first = num_frames(samples) - self.right_context - 1
        return 1 + beyond_first // self.subsampling_rate if beyond_first >= 0 else 0

    def windows_in(self, frames: int) -> int:
        """Windows that `frames` feature frames make."""
        return max((frames - self.window_frames) // self.stride_frames + 1, 0)

    def frames_end(self, windows: int) -> int:
        """Feature frames that the first `windows` windows cover."""
        return (windows - 1) * self.stride_frames + self.window_frames if windows else 0

    def samples_end(self, windows: int) -> int:
        """Samples that the first `windows` windows cover."""
        return span_samples(self.frames_end(windows))

    def full_windows(self, samples: int) -> int:
        """Windows that `samples` fill."""
        return self.windows_in(num_frames(samples))

    def final_windows(self, samples: int) -> int:
        """Windows of a stream that ended after `samples`; 0 for a stream without audio.

        Silence fills the last one, so that `padding_ms` of it is decoded and the last real
        sample has a whole window around it.
        """
        if not samples:
            return 0
        padded = samples + self.padding_ms * SAMPLE_RATE // 1000
        return -(-padded // (self.stride_frames * SHIFT_SAMPLES))

    def padded_samples(self, samples: int) -> int:
        """Length of a stream of `samples` with its final silence."""
        return self.samples_end(self.final_windows(samples))
