"""One utterance on its way through Whisper: the parts that have voice, and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from oasr.audio.voiced import Voice
from oasr.decoding.options import DecodingOptions
from oasr.decoding.words import Word
from oasr.engine.family import primary
from oasr.engine.request import Evidence, Request, RequestOutput, Stretch
from oasr.engine.whisper_part import SAMPLES_PER_MS, WhisperPart, parts
from oasr.engine.whisper_windows import STEP_SAMPLES, Heard, Manner, Samples
from oasr.errors import OptionError
from oasr.features.log_mel import RATE, WINDOW_SAMPLES
from oasr.models.whisper.rules import compression
from oasr.models.whisper.tokens import Said, WhisperTokens

MARGIN_SAMPLES: Final = RATE * 3 // 10  # heard around a voice; longer pauses are left out
# Tones may pass for a short voice; among what surrounds it the model can tell.
LITTLE_VOICE_MS: Final = 1000
WIDE_MARGIN_SAMPLES: Final = 10 * RATE


class WhisperUtterance:
    """Audio without a voice is never read: the model would invent words for it."""

    def __init__(
        self, request: Request, audio: Samples, voice: Voice | None, tokens: WhisperTokens
    ) -> None:
        """`voice` is that of `audio`; None: nobody speaks."""
        self.request = request
        self.manner = manner_of(request.decoding, tokens)
        self._tokens = tokens
        self._samples = len(audio)
        self._voice = voice
        self.parts = [] if voice is None else _parts(audio, voice)

    @property
    def failed(self) -> bool:
        """Whether a part of it could not be read."""
        return any(part.failed for part in self.parts)

    def output(self) -> RequestOutput:
        """The terminal output."""
        stretches = tuple(self._stretches())
        heard = [one for part in self.parts for _, one in part.heard]
        confidences = self.request.decoding.confidences
        return RequestOutput(
            self.request.request_id,
            text=" ".join(stretch.text for stretch in stretches),
            tokens=tuple(token for one in heard for token in one.tokens),
            finished=True,
            finish_reason="stop",
            decoded_samples=self._samples,
            confidence=_confidence(heard) if confidences else None,
            words=tuple(word for stretch in stretches for word in stretch.words),
            evidence=self._evidence(heard),
            stretches=stretches,
        )

    def _stretches(self) -> Iterator[Stretch]:
        said_until = 0
        for part in self.parts:
            for position, heard in part.heard:
                first = 0  # among the tokens of the window
                for said in heard.said:
                    stretch = self._stretch(part, position, heard, said, first)
                    first += len(said.tokens)
                    if stretch.text:
                        start = max(said_until, stretch.start_sample)
                        said_until = max(start, stretch.end_sample)
                        yield _moved(stretch, start, said_until)

    def _stretch(
        self, part: WhisperPart, position: int, heard: Heard, said: Said, first: int
    ) -> Stretch:
        assert self._voice is not None  # else nothing is read
        last = WINDOW_SAMPLES if said.end_ms is None else said.end_ms * SAMPLES_PER_MS
        place = part.place(position + said.start_ms * SAMPLES_PER_MS, position + last)
        start, end = self._voice.within(*place)
        words = tuple(self._words(part, position, heard, said, first))
        if words:
            start, end = words[0].start_sample, words[-1].end_sample
        confidences = self.request.decoding.confidences
        return Stretch(
            self._tokens.text(said.tokens),
            start,
            end,
            words,
            min(1.0, math.exp(heard.reading.log_prob)) if confidences else None,
            self._evidence([heard], part),
        )

    def _words(
        self, part: WhisperPart, position: int, heard: Heard, said: Said, first: int
    ) -> Iterator[Word]:
        assert self._voice is not None
        if heard.aligned is None:
            return
        starts = position + heard.aligned.starts * STEP_SAMPLES
        for text, begin, end in self._tokens.words(said.tokens):
            sure = float(np.mean(heard.aligned.probabilities[first + begin : first + end]))
            place = part.place(int(starts[first + begin]), int(starts[first + end]))
            # The decoder's words follow each other without gaps; pauses belong to none of them.
            start, stop = self._voice.within(*place)
            confidences = self.request.decoding.confidences
            yield Word(text, start, stop, max(sure, 1e-6) if confidences else None)

    def _evidence(self, heard: list[Heard], part: WhisperPart | None = None) -> Evidence:
        """The worst of some windows; the coverage is that of the part, or of all."""
        voiced_ms = 0 if self._voice is None else self._voice.voiced_ms
        if not heard:
            return Evidence(voiced_ms)
        among = self.parts if part is None else [part]
        covered = sum(one.covered_samples for one in among)
        readings = [one.reading for one in heard]
        language = heard[0].language
        return Evidence(
            voiced_ms=voiced_ms,
            coverage=round(covered / sum(one.voice_samples for one in among), 3),
            no_speech=max(reading.no_speech for reading in readings),
            log_prob=min(reading.log_prob for reading in readings),
            compression=max(compression(self._tokens.text(one.tokens)) for one in heard),
            temperature=max(one.temperature for one in heard),
            language=None if language is None else self._tokens.language(language),
            language_probability=heard[0].sure,
        )


def manner_of(decoding: DecodingOptions, tokens: WhisperTokens) -> Manner:
    """How the windows of a request are read; OptionError where its prompt is too long."""
    phrases = ", ".join(hotword.phrase for hotword in decoding.hotwords)
    try:
        before = tokens.prompt(" ".join(filter(None, (decoding.initial_prompt, phrases))))
    except ValueError as error:
        name = "hotwords" if phrases else "initial_prompt"
        raise OptionError(name, f"{name}: {error}") from error
    language = decoding.language
    return Manner(
        1 if decoding.search == "greedy" else decoding.beam,
        before,
        None if language is None else tokens.languages.get(primary(language)),
        decoding.task == "translate",
    )


def _parts(audio: Samples, voice: Voice) -> list[WhisperPart]:
    margin = MARGIN_SAMPLES if voice.voiced_ms >= LITTLE_VOICE_MS else WIDE_MARGIN_SAMPLES
    stretches = voice.stretches(margin, len(audio))
    return list(parts(audio, stretches, margin, voice.end_sample))


def _moved(stretch: Stretch, start: int, end: int) -> Stretch:
    """With other edges, where those that the model gave overlap."""
    if (start, end) == (stretch.start_sample, stretch.end_sample):
        return stretch
    return Stretch(stretch.text, start, end, stretch.words, stretch.confidence, stretch.evidence)


def _confidence(heard: list[Heard]) -> float | None:
    """The mean probability of a token, of windows by their number of tokens."""
    counts = [len(one.tokens) for one in heard]
    if not sum(counts):
        return None
    shares = (n * math.exp(one.reading.log_prob) for n, one in zip(counts, heard, strict=True))
    return min(1.0, math.fsum(shares) / sum(counts))
