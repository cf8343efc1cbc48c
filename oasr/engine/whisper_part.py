"""What of an utterance is read on its own with Whisper: stretches of voice, without the pauses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from oasr.engine.whisper_windows import STEP_SAMPLES, Heard, Samples
from oasr.features.log_mel import RATE, WINDOW_SAMPLES
from oasr.models.whisper.tokens import TIME_STEP_MS

Stretches = Sequence[tuple[int, int]]  # samples [start, end) of the utterance, in order

UNHEARD_SAMPLES: Final = RATE  # of voice behind the last word: more than a pause
SAMPLES_PER_MS: Final = STEP_SAMPLES // TIME_STEP_MS


class WhisperPart:
    """Reads its audio from where the last window ended its text, until no voice is left.

    The decoder may end a window early; what voice it left out is read as the next one.
    """

    def __init__(self, audio: Samples, stretches: Stretches, voice_end: int) -> None:
        """`voice_end` is the sample of `audio` behind the last voice in the last stretch."""
        self._audio = np.concatenate([audio[start:end] for start, end in stretches])
        self._begins = np.array([start for start, _ in stretches], np.int64)
        lengths = [end - start for start, end in stretches]
        self._places = np.cumsum([0, *lengths[:-1]])  # where each begins in `_audio`
        self._voice_end = max(1, len(self._audio) - stretches[-1][1] + voice_end)
        self._position = 0  # what lies before was read
        self._covered = 0  # where the text ends
        self.failed = False
        self.heard: list[tuple[int, Heard]] = []  # with the position of each window

    @property
    def rest(self) -> Samples:
        """What has not been read."""
        return self._audio[self._position :]

    @property
    def is_read(self) -> bool:
        """Whether no voice is left, or nothing more can be got."""
        left = self._voice_end - self._position
        return self.failed or left <= (UNHEARD_SAMPLES if self._position else 0)

    @property
    def voice_samples(self) -> int:
        """How long the part is, without its last margin."""
        return self._voice_end

    @property
    def covered_samples(self) -> int:
        """Up to where the text goes, of `voice_samples`."""
        return min(self._covered, self._voice_end)

    def hear(self, heard: Heard | None) -> None:
        """Take what the next window says; None: it failed."""
        if heard is None:
            self.failed = True
            return
        window_end = min(self._position + WINDOW_SAMPLES, len(self._audio))
        if heard.is_cut_off or window_end < len(self._audio):
            # What no time closes goes on behind the window, or was not written to its end.
            heard = heard.without_open_end()
        text_end = window_end
        if heard.said:
            end_ms = heard.said[-1].end_ms
            if end_ms is not None:
                text_end = min(window_end, self._position + end_ms * SAMPLES_PER_MS)
            self._covered = text_end
            self.heard.append((self._position, heard))
        stands = text_end - self._position < UNHEARD_SAMPLES
        self._position = window_end if stands else text_end

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where samples [start, end) of the part lie in the utterance."""
        start, end = (min(max(edge, 0), len(self._audio)) for edge in (start, end))
        first = int(np.searchsorted(self._places, start, "right")) - 1
        # What ends where a stretch begins ended before the pause.
        last = max(first, int(np.searchsorted(self._places, end, "left")) - 1)
        begin = self._begins[first] + start - self._places[first]
        return int(begin), int(max(begin, self._begins[last] + end - self._places[last]))


def parts(
    audio: Samples, stretches: Stretches, margin_samples: int, voice_end: int
) -> Iterator[WhisperPart]:
    """Cuts between stretches, into parts of a window where that is possible.

    Behind the voice of each stretch lies the margin; the last voice of all ends at `voice_end`.
    """
    held: list[tuple[int, int]] = []
    for start, end in stretches:
        if held and sum(b - a for a, b in held) + end - start > WINDOW_SAMPLES:
            yield WhisperPart(audio, held, held[-1][1] - margin_samples)
            held = []
        held.append((start, end))
    if held:
        yield WhisperPart(audio, held, voice_end)
