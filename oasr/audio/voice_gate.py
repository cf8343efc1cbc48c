"""Tells speech from background by a trained VAD; noise, music and hum may be as loud as they like.

It hears 10 ms frames like the energy gate, and follows the energy too: a cut in the middle of
speech falls where it is quietest, which a VAD does not know.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

from oasr.audio.gate import EnergyGate
from oasr.audio.silero import WINDOW_MS, VoiceActivity

Int16Array = npt.NDArray[np.int16]

SPEECH: Final = 0.5  # a window above it may be an onset
STILL_SPEECH: Final = 0.35  # a window above it lets speech go on
ONSET_WINDOWS: Final = 2  # of the last three; a single one may be a click
LINK_MS: Final = 300  # speech nearer than this belongs together
_FRAME_MS: Final = 10
_RECENT_WINDOWS: Final = 3


class VoiceGate:
    """Follows the voice in one span; its decisions depend on the audio of the span alone."""

    def __init__(self, rate: int, frame_samples: int, memory_frames: int) -> None:
        """ImportError if the extra `vad` is not installed."""
        self._frame_samples = frame_samples
        self._energy = EnergyGate(frame_samples, memory_frames)
        self._voice = VoiceActivity(rate)
        self._recent: deque[bool] = deque(maxlen=_RECENT_WINDOWS)
        self._first_ms: int | None = None  # where the speech heard last began
        self._last_ms = 0  # where it ended so far
        self._windows = 0
        self._active = False
        self._silence = 0  # frames since speech last went on

    def await_onset(self, frames: Int16Array) -> int | None:
        """Hear whole frames up to the one that makes an onset; returns how many those are.

        None: all were heard, and none did.
        """
        for number, frame in enumerate(self._each(frames), 1):
            if self._hear(frame) and sum(self._recent) >= ONSET_WINDOWS:
                self._follow_energy(frames, number)
                return number
        self._follow_energy(frames, None)
        return None

    def await_silence(self, frames: Int16Array, enough_frames: int) -> int | None:
        """Hear whole frames until speech is over for so many; returns how many those are.

        None: all were heard, and it is not. Silence goes on from one call to the next.
        """
        for number, frame in enumerate(self._each(frames), 1):
            self._hear(frame)
            self._silence = 0 if self._active else self._silence + 1
            if self._silence >= enough_frames:
                self._follow_energy(frames, number)
                return number
        self._follow_energy(frames, None)
        return None

    def may_hold_speech(self, rest: Int16Array) -> bool:
        """Whether more of the last windows, or of the part frame `rest`, might be speech.

        The span is over after it.
        """
        if any(self._recent) or self._active:
            return True
        self._hear(rest)
        return self._active or self._voice.peek() > STILL_SPEECH

    def onset_frame(self, span: Int16Array) -> int | None:
        """The frame of the span, which was heard, with which its last speech begins, if any."""
        del span
        return None if self._first_ms is None else self._first_ms // _FRAME_MS

    def rest_frame(self, window: Int16Array) -> int:
        """The frame at which to cut the last frames heard, which are speech."""
        return self._energy.rest_frame(window)

    def _each(self, frames: Int16Array) -> Int16Array:
        return frames.reshape(-1, self._frame_samples)

    def _follow_energy(self, frames: Int16Array, heard: int | None) -> None:
        end = len(frames) if heard is None else heard * self._frame_samples
        self._energy.await_silence(frames[:end], sys.maxsize)

    def _hear(self, samples: Int16Array) -> bool:
        """Hear more; True if the newest window is speech for certain."""
        for probability in self._voice.push(samples):
            begin_ms = self._windows * WINDOW_MS
            self._windows += 1
            self._active = probability > STILL_SPEECH
            self._recent.append(probability > SPEECH)
            if probability > SPEECH:
                if self._first_ms is None or begin_ms - self._last_ms > LINK_MS:
                    self._first_ms = begin_ms
                self._last_ms = begin_ms + WINDOW_MS
        return bool(self._recent) and self._recent[-1]
