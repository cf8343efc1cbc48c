"""One utterance on its way through Whisper: how far it was read, and what it says."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oasr.audio.voiced import find_voice
from oasr.decoding.words import Word
from oasr.engine.request import Evidence, Request, RequestOutput
from oasr.engine.whisper_windows import STEP_SAMPLES, Heard, Samples
from oasr.features.log_mel import RATE, WINDOW_SAMPLES
from oasr.models.whisper.rules import compression
from oasr.models.whisper.tokens import TIME_STEP_MS, WhisperTokens

LEAD_SAMPLES: Final = RATE // 5  # heard before the first voice
UNHEARD_SAMPLES: Final = RATE  # of voice behind the last word: more than a pause
_STEP_SAMPLES_PER_MS: Final = STEP_SAMPLES // TIME_STEP_MS


class WhisperUtterance:
    """Reads its audio from where the last window ended its text, until no voice is left.

    Audio without a voice is never read: the model would invent words for it. The decoder may end
    a window early; what voice it left out is read as the next one.
    """

    def __init__(self, request: Request, audio: Samples, tokens: WhisperTokens) -> None:
        """What lies beyond `keep_samples` is not read: the next utterance has it, too."""
        self.request = request
        self.beam = 1 if request.decoding.search == "greedy" else request.decoding.beam
        self.failed = False
        self._tokens = tokens
        self._audio = audio[: request.keep_samples]
        self._voice = find_voice(self._audio) if len(self._audio) else None
        # Everything before it was read, or has no voice.
        self._position = max(0, self._voice.start_sample - LEAD_SAMPLES) if self._voice else 0
        self._covered = 0  # where the text ends
        self._heard: list[tuple[int, Heard]] = []  # with the position of each window

    @property
    def rest(self) -> Samples:
        """What has not been read."""
        return self._audio[self._position :]

    @property
    def is_read(self) -> bool:
        """Whether no voice is left, or nothing more can be got."""
        if self._voice is None or self.failed:
            return True
        return self._voice.end_sample - self._position <= (UNHEARD_SAMPLES if self._heard else 0)

    def hear(self, heard: Heard | None) -> None:
        """Take what the next window says; None: it failed."""
        if heard is None:
            self.failed = True
            return
        window_end = min(self._position + WINDOW_SAMPLES, len(self._audio))
        text_end = window_end
        if heard.said:
            end_ms = heard.said[-1].end_ms
            if end_ms is not None:
                text_end = min(window_end, self._position + end_ms * _STEP_SAMPLES_PER_MS)
            self._covered = text_end
            self._heard.append((self._position, heard))
        stands = text_end - self._position < UNHEARD_SAMPLES
        self._position = window_end if stands else text_end

    def output(self) -> RequestOutput:
        """The terminal output."""
        decoding = self.request.decoding
        tokens = [token for _, heard in self._heard for token in heard.tokens]
        words = self._words()
        return RequestOutput(
            self.request.request_id,
            text=" ".join(filter(None, (self._tokens.text(h.tokens) for _, h in self._heard))),
            tokens=tuple(tokens),
            finished=True,
            finish_reason="stop",
            decoded_samples=len(self._audio),
            confidence=self._confidence() if decoding.confidences else None,
            words=tuple(words),
            evidence=self._evidence(),
        )

    def _words(self) -> list[Word]:
        found: list[Word] = []
        for position, heard in self._heard:
            if heard.aligned is None:
                continue
            starts = position + heard.aligned.starts * STEP_SAMPLES
            for text, first, last in self._tokens.words(heard.tokens):
                sure = float(np.mean(heard.aligned.probabilities[first:last]))
                found.append(self._word(text, starts, first, last, sure))
        return found

    def _word(
        self, text: str, starts: NDArray[np.int64], first: int, last: int, sure: float
    ) -> Word:
        assert self._voice is not None  # else nothing is read
        end = len(self._audio)
        # The decoder's words follow each other without gaps; pauses belong to none of them.
        begin, stop = self._voice.within(min(int(starts[first]), end), min(int(starts[last]), end))
        confidence = max(sure, 1e-6) if self.request.decoding.confidences else None
        return Word(text, begin, stop, confidence)

    def _confidence(self) -> float | None:
        """The mean probability of a token, of windows by their number of tokens."""
        counts = [len(heard.tokens) for _, heard in self._heard]
        if not sum(counts):
            return None
        shares = (
            count * math.exp(heard.reading.log_prob)
            for count, (_, heard) in zip(counts, self._heard, strict=True)
        )
        return min(1.0, math.fsum(shares) / sum(counts))

    def _evidence(self) -> Evidence:
        """The worst of its windows; `coverage` is that of the voice."""
        voice = self._voice
        if voice is None or not self._heard:
            return Evidence(voiced_ms=0 if voice is None else voice.voiced_ms)
        span = voice.end_sample - voice.start_sample
        covered = min(self._covered, voice.end_sample) - voice.start_sample
        readings = [heard.reading for _, heard in self._heard]
        return Evidence(
            voiced_ms=voice.voiced_ms,
            coverage=round(max(0.0, covered / span), 3),
            no_speech=max(reading.no_speech for reading in readings),
            log_prob=min(reading.log_prob for reading in readings),
            compression=max(compression(self._tokens.text(h.tokens)) for _, h in self._heard),
            temperature=max(heard.temperature for _, heard in self._heard),
        )
