"""The ways to tell speech from background, and what a segmenter needs of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from oasr.audio import silero
from oasr.audio.gate import EnergyGate
from oasr.audio.voice_gate import VoiceGate

Int16Array = npt.NDArray[np.int16]


class Vad(StrEnum):
    """What decides whether a frame is speech."""

    ENERGY = "energy"
    SILERO = "silero"

    @property
    def is_installed(self) -> bool:
        """Whether this installation can run it."""
        return self is Vad.ENERGY or silero.is_installed()


class SpeechGate(Protocol):
    """Hears one span, from its start, in whole frames of 10 ms."""

    def await_onset(self, frames: Int16Array) -> int | None:
        """How many of the next frames it took to find speech; None: all, and there is none."""

    def await_silence(self, frames: Int16Array, enough_frames: int) -> int | None:
        """How many of the next frames it took until so many were silent; None: all, and not yet."""

    def may_hold_speech(self, rest: Int16Array) -> bool:
        """Whether the end of the span, `rest` being its last part frame, might be speech."""

    def onset_frame(self, span: Int16Array) -> int | None:
        """The frame with which the last speech begins in all that was heard, if any does."""

    def rest_frame(self, window: Int16Array) -> int:
        """The frame of the last ones heard at which to cut, though speech goes on."""


def new_gate(vad: Vad, rate: int, memory_frames: int) -> SpeechGate:
    """A gate for one span; ImportError if `vad` is not installed."""
    frame_samples = rate // 100
    if vad is Vad.SILERO:
        return VoiceGate(rate, frame_samples, memory_frames)
    return EnergyGate(frame_samples, memory_frames)
