"""How loud the audio is, every 10 ms: it shows where the sound around a token begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEVEL_SAMPLES: Final = 160
SMOOTHED_LEVELS: Final = 3
QUIETEST_DB: Final = -90.0  # of full scale; digital silence
NOISE_PERCENTILE: Final = 5.0
ABOVE_NOISE_DB: Final = 10.0
BELOW_PEAK_DB: Final = 32.0  # what is softer than this under the loudest is no speech
CLEAR_DB: Final = 20.0  # where the noise is nearer to the loudest, it cannot be told from speech

REACH_LEVELS: Final = 60  # how far from a token's peak its sound may begin or end
LATE_LEVELS: Final = 20  # how long after its sound has ended a token may peak
PAUSE_LEVELS: Final = 10  # shorter silence is part of a sound: the closure of a stop


class LoudnessTrack:
    """The level of each 10 ms of an utterance, however its samples come in."""

    def __init__(self) -> None:
        self._levels: list[NDArray[np.float64]] = []
        self._tail = np.zeros(0, np.float32)  # samples of a level that is not complete

    def push(self, samples: NDArray[np.float32]) -> None:
        """Append samples (N,) at 16 kHz."""
        held = np.concatenate((self._tail, samples))
        whole = len(held) // LEVEL_SAMPLES * LEVEL_SAMPLES
        self._tail = held[whole:]
        if whole:
            frames = held[:whole].reshape(-1, LEVEL_SAMPLES).astype(np.float64)
            self._levels.append(frames.var(axis=1))

    def sounds(self, end_sample: int) -> Sounds:
        """Where speech can be heard in the audio before `end_sample`."""
        energies = np.concatenate((*self._levels, np.zeros(0)))
        self._levels = [energies]
        energies = energies[: end_sample // LEVEL_SAMPLES]
        if not len(energies):
            return Sounds(np.zeros(0, np.bool_))
        kernel = np.full(SMOOTHED_LEVELS, 1 / SMOOTHED_LEVELS)
        smooth = np.convolve(np.pad(energies, SMOOTHED_LEVELS // 2, mode="edge"), kernel, "valid")
        levels = 10 * np.log10(np.maximum(smooth, 10 ** (QUIETEST_DB / 10)))
        loudest = levels.max()
        noise = np.percentile(levels, NOISE_PERCENTILE)
        least = loudest - BELOW_PEAK_DB
        if noise < loudest - CLEAR_DB:
            least = max(least, noise + ABOVE_NOISE_DB)
        return Sounds(levels > least)


@dataclass(frozen=True, slots=True)
class Sounds:
    """Whether speech can be heard, for each 10 ms of an utterance."""

    heard: NDArray[np.bool_]

    def settle(self, peak_sample: int) -> int:
        """Where in its sound a token peaked: the end of the sound, where that is just over."""
        peak = min(peak_sample // LEVEL_SAMPLES, len(self.heard) - 1)
        for level in range(peak, max(-1, peak - LATE_LEVELS), -1):
            if self.heard[level]:
                return min(peak_sample, (level + 1) * LEVEL_SAMPLES - 1)
        return peak_sample

    def begin(self, peak_sample: int, earliest_sample: int) -> int | None:
        """The sample where the sound around a settled peak begins.

        None where there is none, or where it reaches back to `earliest_sample` or too far.
        """
        peak = peak_sample // LEVEL_SAMPLES
        if not self._is_heard(peak):
            return None
        first = max(-(-earliest_sample // LEVEL_SAMPLES), peak - REACH_LEVELS, 0)
        begin = peak
        for level in range(peak, first - 1, -1):
            if self.heard[level]:
                begin = level
            elif begin - level >= PAUSE_LEVELS:
                return begin * LEVEL_SAMPLES
        return begin * LEVEL_SAMPLES if first == 0 else None

    def end(self, peak_sample: int, latest_sample: int) -> int | None:
        """The sample where the sound around a settled peak ends.

        None where there is none, or where it goes on to `latest_sample` or too far.
        """
        peak = peak_sample // LEVEL_SAMPLES
        if not self._is_heard(peak):
            return None
        last = min(latest_sample // LEVEL_SAMPLES, peak + REACH_LEVELS, len(self.heard))
        end = peak
        for level in range(peak, last):
            if self.heard[level]:
                end = level
            elif level - end >= PAUSE_LEVELS:
                return (end + 1) * LEVEL_SAMPLES
        return (end + 1) * LEVEL_SAMPLES if last == len(self.heard) else None

    def _is_heard(self, level: int) -> bool:
        return level < len(self.heard) and bool(self.heard[level])
