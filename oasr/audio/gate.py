"""Tells speech from background by the energy of 10 ms frames, in integers alone.

Thresholds are ratios of a noise floor: the lowest frame heard lately, lightly smoothed and kept
within bounds. The lower bound keeps the idle noise of a line from looking like speech, the upper
one lets a stretch that begins in the middle of a word still be heard. Every value is an integer,
so the same samples give the same decisions on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]
Int64Array = npt.NDArray[np.int64]

LOUD_RATIO = 8  # 9 dB over the floor: speech for certain
QUIET_RATIO = 4  # 6 dB over the floor: below it a frame counts as background
FLOOR_LOWEST = 32 * 32  # mean square of int16 samples: −60 dBFS
FLOOR_HIGHEST = 519 * 519  # −36 dBFS

ONSET_WINDOW_FRAMES = 10
ONSET_LOUD_FRAMES = 4  # a click is loud in two frames at most
ACTIVE_WINDOW_FRAMES = 5
ACTIVE_FRAMES = 3
LINK_FRAMES = 30  # loud frames nearer than this belong to the same speech
REST_LEAD_FRAMES = 10  # kept before the next word when speech has to be cut
_ACTIVE_MASK = (1 << ACTIVE_WINDOW_FRAMES) - 1
_SMOOTHING_FRAMES = 3
_NOT_HEARD = 1 << 62  # in the place of frames before the first; above any energy
_LONGEST_EXACT_FRAME = 2_896  # n² · 2³⁰ below 2⁵³


def frame_energies(samples: Int16Array, frame_samples: int) -> Int64Array:
    """Energies of the whole frames in `samples`: variance × frame_samples², as int64.

    The variance ignores a constant offset, which cheap converters and 8-bit audio have.
    """
    # A double holds these integers exactly, and is summed much faster than an int64.
    exact = np.float64 if frame_samples <= _LONGEST_EXACT_FRAME else np.int64
    frames = samples[: len(samples) // frame_samples * frame_samples].astype(exact)
    frames = frames.reshape(-1, frame_samples)
    sums = frames.dot(_ones(frame_samples, exact))
    energies = np.vecdot(frames, frames)
    energies *= frame_samples
    sums *= sums
    energies -= sums
    integers: Int64Array = energies.astype(np.int64, copy=False)
    return integers


@lru_cache(maxsize=16)
def _ones(length: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """A product with it sums the rows faster than `sum` does."""
    ones = np.ones(length, dtype)
    ones.flags.writeable = False
    return ones


class EnergyGate:
    """Follows the noise floor of one span; its decisions depend on the frames heard alone."""

    __slots__ = (
        "_above",
        "_before",
        "_frame",
        "_frame_samples",
        "_lows",
        "_memory_frames",
        "_recent",
        "_silence",
        "_unit",
        "loud_above",
        "quiet_to",
    )

    def __init__(self, frame_samples: int, memory_frames: int) -> None:
        self._frame_samples = frame_samples
        self._memory_frames = memory_frames
        self._unit = _SMOOTHING_FRAMES * frame_samples * frame_samples
        self._frame = 0
        self._recent: deque[int] = deque(maxlen=ONSET_WINDOW_FRAMES)
        self._before = (_NOT_HEARD, _NOT_HEARD)  # the last two energies
        self._above = 0  # one bit for each of the last frames: above the background?
        self._silence = 0  # frames since speech last went on
        # Smoothed energies that may yet be the lowest, rising, with the frames they ended at.
        self._lows: deque[tuple[int, int]] = deque()
        self.loud_above = 0
        self.quiet_to = 0
        self._set_floor(_NOT_HEARD)

    def await_onset(self, frames: Int16Array) -> int | None:
        """Hear whole frames up to the one that makes an onset; returns how many those are.

        None: all were heard, and none did.
        """
        return self.hear(frame_energies(frames, self._frame_samples).tolist(), None)

    def await_silence(self, frames: Int16Array, enough_frames: int) -> int | None:
        """Hear whole frames until speech is over for so many; returns how many those are.

        None: all were heard, and it is not. Silence goes on from one call to the next.
        """
        return self.hear(frame_energies(frames, self._frame_samples).tolist(), enough_frames)

    def hear(self, energies: Sequence[int], enough_silence: int | None) -> int | None:
        """Hear frames up to a decision: as `await_silence`, or as `await_onset` if None."""
        recent, lows, above, frame = self._recent, self._lows, self._above, self._frame
        second, last = self._before
        loud_above, quiet_to = self.loud_above, self.quiet_to
        memory_frames = self._memory_frames
        decided = None
        for number, energy in enumerate(energies, 1):
            frame += 1
            recent.append(energy)
            smoothed = second + last + energy
            second, last = last, energy
            while lows and lows[-1][0] >= smoothed:
                lows.pop()
            lows.append((smoothed, frame))
            forgotten = lows[0][1] <= frame - memory_frames
            if forgotten:
                lows.popleft()
            if forgotten or len(lows) == 1:
                self._set_floor(lows[0][0])
                loud_above, quiet_to = self.loud_above, self.quiet_to
            above = (above << 1 | (energy > quiet_to)) & _ACTIVE_MASK
            if enough_silence is None:
                if energy > loud_above and self._loud_frames() >= ONSET_LOUD_FRAMES:
                    decided = number
                    break
            elif above.bit_count() >= ACTIVE_FRAMES:
                self._silence = 0
            else:
                self._silence += 1
                if self._silence >= enough_silence:
                    decided = number
                    break
        self._above, self._frame, self._before = above, frame, (second, last)
        return decided

    def may_hold_speech(self, rest: Int16Array) -> bool:
        """Whether more of the last frames, or of the part frame `rest`, might be speech."""
        if self._loud_frames():
            return True
        if not len(rest):
            return False
        energy = int(frame_energies(rest, len(rest))[0]) * self._frame_samples**2
        return energy // (len(rest) * len(rest)) > self.loud_above

    def onset_frame(self, span: Int16Array) -> int | None:
        """The frame of the span, which was heard, with which its last speech begins, if any."""
        return first_frame_of_speech(frame_energies(span, self._frame_samples), self.loud_above)

    def rest_frame(self, window: Int16Array) -> int:
        """The frame at which to cut the last frames heard, which are speech."""
        energies = frame_energies(window, self._frame_samples)
        return place_of_rest(energies, self.quiet_to, REST_LEAD_FRAMES)

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
