"""Tells speech from background by the energy of 10 ms frames, in integers alone.

Thresholds are ratios of a noise floor: the lowest frame heard lately, lightly smoothed and kept
within bounds. The lower bound keeps the idle noise of a line from looking like speech, the upper
one lets a stretch that begins in the middle of a word still be heard. No float takes part, so the
same samples give the same decisions on every machine.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

LOUD_RATIO = 8  # 9 dB over the floor: speech for certain
QUIET_RATIO = 4  # 6 dB over the floor: below it a frame counts as background
FLOOR_LOWEST = 32 * 32  # mean square of int16 samples: −60 dBFS
FLOOR_HIGHEST = 519 * 519  # −36 dBFS

ONSET_WINDOW_FRAMES = 10
ONSET_LOUD_FRAMES = 4  # a click is loud in two frames at most
ACTIVE_WINDOW_FRAMES = 5
ACTIVE_FRAMES = 3
_ACTIVE_MASK = (1 << ACTIVE_WINDOW_FRAMES) - 1
LINK_FRAMES = 30  # loud frames nearer than this belong to the same speech
_SMOOTHING_FRAMES = 3


def frame_energies(samples: npt.NDArray[np.int16], frame_samples: int) -> npt.NDArray[np.int64]:
    """Energies of the whole frames in `samples`: variance × frame_samples², as int64.

    The variance ignores a constant offset, which cheap converters and 8-bit audio have.
    """
    frames = samples[: len(samples) // frame_samples * frame_samples].astype(np.int64)
    frames = frames.reshape(-1, frame_samples)
    sums = frames.sum(axis=1)
    energies: npt.NDArray[np.int64] = frame_samples * np.vecdot(frames, frames) - sums * sums
    return energies


class Gate:
    """Follows the noise floor of one span; its decisions depend on the frames pushed alone."""

    __slots__ = (
        "_above",
        "_frames",
        "_lows",
        "_memory_frames",
        "_recent",
        "_unit",
        "loud_above",
        "quiet_to",
    )

    def __init__(self, frame_samples: int, memory_frames: int) -> None:
        self._unit = _SMOOTHING_FRAMES * frame_samples * frame_samples
        self._memory_frames = memory_frames
        self._frames = 0
        self._recent: deque[int] = deque(maxlen=ONSET_WINDOW_FRAMES)
        self._above = 0  # one bit for each of the last frames: above the background?
        # Smoothed energies that may yet be the lowest, rising, with the frames they ended at.
        self._lows: deque[tuple[int, int]] = deque()
        self.loud_above = 0
        self.quiet_to = 0
        self._set_floor(FLOOR_HIGHEST * self._unit)

    def push(self, energy: int) -> None:
        """Hear the next frame, given as `frame_energies` measures it."""
        recent = self._recent
        recent.append(energy)
        self._frames = frame = self._frames + 1
        if frame >= _SMOOTHING_FRAMES:
            smoothed = energy + recent[-2] + recent[-3]
            lows = self._lows
            while lows and lows[-1][0] >= smoothed:
                lows.pop()
            lows.append((smoothed, frame))
            forgotten = lows[0][1] <= frame - self._memory_frames
            if forgotten:
                lows.popleft()
            if forgotten or len(lows) == 1:
                self._set_floor(lows[0][0])
        self._above = (self._above << 1 | (energy > self.quiet_to)) & _ACTIVE_MASK

    def is_onset(self) -> bool:
        """Whether the last frames hold enough loud ones to be speech."""
        return self._recent[-1] > self.loud_above and self._loud_frames() >= ONSET_LOUD_FRAMES

    def may_be_onset(self) -> bool:
        """Whether the last frames hold any loud one, so that more of it might be speech."""
        return self._loud_frames() > 0

    def is_active(self) -> bool:
        """Whether most of the last frames are above the background: speech goes on."""
        return self._above.bit_count() >= ACTIVE_FRAMES

    def _loud_frames(self) -> int:
        return sum(energy > self.loud_above for energy in self._recent)

    def _set_floor(self, smoothed: int) -> None:
        floor = min(max(smoothed, FLOOR_LOWEST * self._unit), FLOOR_HIGHEST * self._unit)
        self.loud_above = LOUD_RATIO * floor // _SMOOTHING_FRAMES
        self.quiet_to = QUIET_RATIO * floor // _SMOOTHING_FRAMES


def first_frame_of_speech(energies: npt.NDArray[np.int64], loud_above: int) -> int | None:
    """Index of the loud frame with which the last run of linked loud frames begins, if any."""
    loud = np.flatnonzero(energies > loud_above)
    if not len(loud):
        return None
    breaks = np.flatnonzero(np.diff(loud) > LINK_FRAMES)
    return int(loud[breaks[-1] + 1] if len(breaks) else loud[0])


def place_of_rest(energies: npt.NDArray[np.int64], quiet_to: int, lead_frames: int) -> int:
    """Frame at which to cut speech that does not pause long enough.

    It lies near the end of the longest quiet run (the later of equals), so that what is emitted
    late still belongs to the words before it; `lead_frames` at most, and half the run at least,
    are left to the words after it. Without a quiet frame it is the quietest one.
    """
    quiet = np.concatenate(([False], energies <= quiet_to, [False])).astype(np.int8)
    edges = np.flatnonzero(np.diff(quiet))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return int(np.argmin(energies))
    lengths = ends - starts
    longest = len(lengths) - 1 - int(np.argmax(lengths[::-1]))
    length, end = int(lengths[longest]), int(ends[longest])
    return end - min(length // 2, lead_frames)
