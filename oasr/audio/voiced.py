"""Where in a stretch of audio somebody speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oasr.audio.silero import WINDOW_MS, heard_together

LEAST_PROBABILITY: Final = 0.5
LEAST_RUN_MS: Final = 96  # shorter bursts are clicks
_RATE: Final = 16_000
_WINDOW: Final = WINDOW_MS * _RATE // 1000  # samples


@dataclass(frozen=True, slots=True)
class Voice:
    """Which windows of WINDOW_MS are voiced; at least one run of them is long enough."""

    is_voiced: NDArray[np.bool_]
    start_sample: int
    end_sample: int

    @property
    def voiced_ms(self) -> int:
        """How much of the audio is voice."""
        return int(self.is_voiced.sum()) * WINDOW_MS

    def stretches(self, margin_samples: int, samples: int) -> list[tuple[int, int]]:
        """What lies within a margin of voice, of `samples` of audio; in order."""
        found: list[tuple[int, int]] = []
        for first, last in _runs(self.is_voiced):
            if first * _WINDOW < self.start_sample or first * _WINDOW >= self.end_sample:
                continue  # too short to count as voice, with none around it
            start = max(0, first * _WINDOW - margin_samples)
            end = min(samples, last * _WINDOW + margin_samples)
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def within(self, start_sample: int, end_sample: int) -> tuple[int, int]:
        """The part of a stretch from its first to its last voice; all of it if it has none."""
        first, last = start_sample // _WINDOW, -(-end_sample // _WINDOW)
        voiced = np.flatnonzero(self.is_voiced[first:last])
        if not len(voiced):
            return start_sample, end_sample
        begin = max(start_sample, (first + int(voiced[0])) * _WINDOW)
        return begin, min(end_sample, (first + int(voiced[-1]) + 1) * _WINDOW)


def find_voices(stretches: Sequence[NDArray[np.float32]]) -> list[Voice | None]:
    """The voice in each stretch at 16 kHz in [−1, 1), by the trained VAD; None: nobody speaks.

    ImportError without the extra `vad`.
    """
    # The detector hears what 16 bits hold.
    heard = [
        np.clip(np.rint(audio * 32768.0), -32768, 32767) / np.float32(32768) for audio in stretches
    ]
    return [
        _voice(probabilities >= LEAST_PROBABILITY, len(audio))
        for audio, probabilities in zip(stretches, heard_together(heard), strict=True)
    ]


def _voice(is_voiced: NDArray[np.bool_], samples: int) -> Voice | None:
    runs = [(a, b) for a, b in _runs(is_voiced) if (b - a) * WINDOW_MS >= LEAST_RUN_MS]
    if not runs:
        return None
    return Voice(is_voiced, runs[0][0] * _WINDOW, min(runs[-1][1] * _WINDOW, samples))


def _runs(is_voiced: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First window and the one behind the last of each run of voice."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_voiced, [False]))))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
