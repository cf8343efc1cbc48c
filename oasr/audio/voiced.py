"""Where in a stretch of audio somebody speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oasr.audio.silero import WINDOW_MS, VoiceActivity

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

    def within(self, start_sample: int, end_sample: int) -> tuple[int, int]:
        """The part of a stretch from its first to its last voice; all of it if it has none."""
        first, last = start_sample // _WINDOW, -(-end_sample // _WINDOW)
        voiced = np.flatnonzero(self.is_voiced[first:last])
        if not len(voiced):
            return start_sample, end_sample
        begin = max(start_sample, (first + int(voiced[0])) * _WINDOW)
        return begin, min(end_sample, (first + int(voiced[-1]) + 1) * _WINDOW)


def find_voice(audio: NDArray[np.float32]) -> Voice | None:
    """The voiced part of audio at 16 kHz in [−1, 1), by the trained VAD; None: nobody speaks.

    ImportError without the extra `vad`.
    """
    pcm = np.clip(np.rint(audio * 32768.0), -32768, 32767).astype(np.int16)
    activity = VoiceActivity(_RATE)
    probabilities = [*activity.push(pcm), activity.peek()]
    is_voiced = np.array(probabilities) >= LEAST_PROBABILITY
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_voiced, [False]))))
    runs = [(a, b) for a, b in edges.reshape(-1, 2).tolist() if (b - a) * WINDOW_MS >= LEAST_RUN_MS]
    if not runs:
        return None
    return Voice(is_voiced, runs[0][0] * _WINDOW, min(runs[-1][1] * _WINDOW, len(audio)))
