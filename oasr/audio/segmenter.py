"""Cuts one channel's audio into spans of silence and segments of speech.

A cut depends on the samples since the last cut and on nothing else: not on how the audio was split
into messages, not on other channels, not on the model. So a segmenter that is begun anew at any
cut makes all later cuts again, which is what makes a replay give the same segments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from oasr.audio.gate import ONSET_WINDOW_FRAMES, REST_LEAD_FRAMES
from oasr.audio.gates import Vad, new_gate
from oasr.audio.history import History

Int16Array = npt.NDArray[np.int16]

_FRAME_MS = 10
_LOWEST_RATE = 1_000


class EndReason(StrEnum):
    """Why a span ended; the values are the wire names, save `no_speech`, which stays inside."""

    SILENCE = "silence"
    MAX_LENGTH = "max_length"
    FLUSH = "flush"
    END = "end"
    IDLE = "idle"
    TTL = "ttl"
    FORMAT_CHANGE = "format_change"
    SHED = "shed"
    ERROR = "error"
    WINDOW = "window"
    NO_SPEECH = "no_speech"


@dataclass(frozen=True, slots=True)
class SegmenterConfig:
    """Durations in milliseconds, rounded up to whole 10 ms frames.

    Raises ValueError that names the field whose value cannot work.
    """

    pre_roll_ms: int = 300
    min_silence_ms: int = 800
    max_utterance_ms: int = 20_000
    no_speech_ms: int = 2_000
    quiet_search_ms: int = 5_000
    gate: bool = True
    vad: Vad = Vad.ENERGY

    def __post_init__(self) -> None:
        onset_ms = ONSET_WINDOW_FRAMES * _FRAME_MS
        longest_before_onset = max(self.quiet_search_ms, self.no_speech_ms)
        checks = (
            ("pre_roll_ms", self.pre_roll_ms, 0),
            ("min_silence_ms", self.min_silence_ms, 50),
            ("quiet_search_ms", self.quiet_search_ms, 2 * REST_LEAD_FRAMES * _FRAME_MS),
            ("no_speech_ms", self.no_speech_ms, self.pre_roll_ms + onset_ms),
            ("max_utterance_ms", self.max_utterance_ms, longest_before_onset + onset_ms),
        )
        for name, value, lowest in checks:
            if value < lowest:
                raise ValueError(f"{name} must be at least {lowest}, not {value}")


@dataclass(frozen=True, slots=True)
class Opened:
    """A segment begins at `start_sample`."""

    start_sample: int


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """The next samples (1-D int16) of the open segment, contiguous from its start on."""

    samples: Int16Array


@dataclass(frozen=True, slots=True)
class Cut:
    """The span ended at `sample`, as was decided when all before `decided_at` had been heard.

    `start_sample` is the start of its segment, None if the span held no speech. The segment got
    the audio up to `decided_at` and owns it up to `sample`, where the next span begins.
    """

    sample: int
    reason: EndReason
    start_sample: int | None
    decided_at: int


Event = Opened | Audio | Cut


class Segmenter:
    """Turns the samples of one channel into segments and cuts; spans tile the time line."""

    def __init__(
        self,
        rate: int,
        start_sample: int,
        config: SegmenterConfig | Callable[[int], SegmenterConfig],
    ) -> None:
        """Begin a span at `start_sample` of a channel of `rate` samples per second.

        A callable gives the config of the span that begins at a sample; it is asked when the
        span's first audio is there. Raises ValueError for a rate below 1 kHz.
        """
        if rate < _LOWEST_RATE:
            raise ValueError(f"rate must be at least {_LOWEST_RATE}, not {rate}")
        self._config_at = config if callable(config) else lambda _sample: config
        self._rate = rate
        self._frame_samples = rate // 100
        self._history = History(start_sample)
        self._begin_span(start_sample)

    @property
    def span_start(self) -> int:
        """Sample of the last cut."""
        return self._span_start

    @property
    def position(self) -> int:
        """Sample that the next call of `feed` has to begin with."""
        return self._history.end

    @property
    def segment_start(self) -> int | None:
        """Start of the open segment; None while no speech was found."""
        return self._segment_start

    def feed(self, samples: Int16Array) -> list[Event]:
        """Hear the next samples (1-D int16, any number) and return what they decide, in order."""
        if samples.dtype != np.int16 or samples.ndim != 1:
            raise ValueError(f"samples must be 1-D int16, not {samples.ndim}-D {samples.dtype}")
        events: list[Event] = []
        # Pieces bound the history, however much comes at once.
        for begin in range(0, len(samples), self._rate):
            self._history.append(samples[begin : begin + self._rate])
            while self._hear_frames(events):
                pass
            self._forget()
        return events

    def cut_at_end(self, reason: EndReason) -> list[Event]:
        """End the span at the last sample fed; the last event is its Cut, even if it is empty.

        Speech too short to have opened a segment yet opens one here, so no last word is lost.
        """
        events: list[Event] = []
        self._configure()
        if self._segment_start is None and self._may_hold_speech():
            self._open(events, self._speech_start() if self._config.gate else self._span_start)
        self._cut(events, self.position, reason, self.position)
        self._forget()
        return events

    def _in_samples(self, duration_ms: int) -> int:
        return -(-duration_ms // _FRAME_MS) * self._frame_samples

    def _begin_span(self, sample: int) -> None:
        self._span_start = sample
        self._heard_to = sample  # end of the last whole frame
        self._segment_start: int | None = None
        self._given_to = sample  # end of the segment's audio that was given out
        self._configured = False

    def _configure(self) -> None:
        """Settle what holds for the span, once it has audio."""
        if self._configured or self.position == self._span_start:
            return
        self._configured = True
        config = self._config = self._config_at(self._span_start)
        self._pre_roll = self._in_samples(config.pre_roll_ms)
        self._min_silence = self._in_samples(config.min_silence_ms)
        self._max_utterance = self._in_samples(config.max_utterance_ms)
        self._no_speech = self._in_samples(config.no_speech_ms)
        self._quiet_search = self._in_samples(config.quiet_search_ms)
        memory_frames = self._quiet_search // self._frame_samples
        vad = config.vad if config.gate else Vad.ENERGY
        self._gate = new_gate(vad, self._rate, memory_frames)

    def _hear_frames(self, events: list[Event]) -> bool:
        """Hear all whole frames of the span; True if one ended it and a new one has begun."""
        self._configure()
        new = self._history.since(self._heard_to)
        frames = new[: len(new) // self._frame_samples * self._frame_samples]
        if self._segment_start is None and len(frames):
            begin = self._heard_to
            if self._wait_for_speech(frames, events):
                return True
            frames = frames[self._heard_to - begin :]
        if len(frames) and self._wait_for_end(frames, events):
            return True
        self._give_audio(events, self._heard_to)
        return False

    def _wait_for_speech(self, frames: Int16Array, events: list[Event]) -> bool:
        """Hear frames up to an onset; True if the span ended instead."""
        if not self._config.gate:
            self._open(events, self._span_start)
            return False
        end = self._span_start + self._no_speech
        frames = frames[: end - self._heard_to]
        heard = self._gate.await_onset(frames)
        if heard is not None:
            self._heard_to += heard * self._frame_samples
            self._open(events, self._speech_start())
            return False
        self._heard_to += len(frames)
        if self._heard_to < end:
            return False
        self._cut(events, end - self._pre_roll, EndReason.NO_SPEECH, end)
        return True

    def _wait_for_end(self, frames: Int16Array, events: list[Event]) -> bool:
        """Hear frames of the open segment; True if the span ended."""
        assert self._segment_start is not None
        end = self._segment_start + self._max_utterance
        frames = frames[: end - self._heard_to]
        enough = self._min_silence // self._frame_samples if self._config.gate else sys.maxsize
        heard = self._gate.await_silence(frames, enough)
        self._heard_to += len(frames) if heard is None else heard * self._frame_samples
        if heard is not None:
            # More than the silence itself would let the next span hear the same words again.
            sample = self._heard_to - min(self._pre_roll, self._min_silence)
            self._cut(events, sample, EndReason.SILENCE, self._heard_to)
            return True
        if self._heard_to < end:
            return False
        self._cut(events, self._sample_of_rest(), EndReason.MAX_LENGTH, end)
        return True

    def _may_hold_speech(self) -> bool:
        if self.position == self._span_start:
            return False
        return not self._config.gate or self._gate.may_hold_speech(
            self._history.since(self._heard_to)
        )

    def _speech_start(self) -> int:
        """Where a segment begins whose speech has been found."""
        heard = self._history.since(self._span_start)[: self._heard_to - self._span_start]
        frame = self._gate.onset_frame(heard)
        onset = self._heard_to if frame is None else self._span_start + frame * self._frame_samples
        return max(self._span_start, onset - self._pre_roll)

    def _open(self, events: list[Event], start: int) -> None:
        self._segment_start = start
        self._given_to = start
        events.append(Opened(start))

    def _give_audio(self, events: list[Event], end: int) -> None:
        if self._segment_start is not None and end > self._given_to:
            events.append(Audio(self._history.between(self._given_to, end)))
            self._given_to = end

    def _cut(self, events: list[Event], sample: int, reason: EndReason, decided_at: int) -> None:
        self._give_audio(events, decided_at)
        events.append(Cut(sample, reason, self._segment_start, decided_at))
        self._begin_span(sample)

    def _sample_of_rest(self) -> int:
        begin = self._heard_to - self._quiet_search
        frame = self._gate.rest_frame(self._history.since(begin)[: self._quiet_search])
        return begin + frame * self._frame_samples

    def _forget(self) -> None:
        needed_from = self._span_start
        if self._segment_start is not None:
            needed_from = max(needed_from, self._heard_to - self._quiet_search)
        self._history.forget_before(needed_from)
