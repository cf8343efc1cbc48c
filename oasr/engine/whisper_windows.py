"""Reads windows of at most 30 s with Whisper, and each of them again if it has to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oasr.features.log_mel import HOP_SAMPLES, LogMel
from oasr.models.whisper.model import MAX_TOKENS, Aligned, Reading, WhisperModel
from oasr.models.whisper.rules import TEMPERATURES, best_of, is_doubtful, is_silence
from oasr.models.whisper.tokens import Said

STEP_SAMPLES: Final = 320  # of the decoder's times

Samples = NDArray[np.float32]


class Manner(NamedTuple):
    """How a window is read; those of one manner can share a batch."""

    beam: int  # readings that are kept
    before: tuple[int, ...] = ()  # tokens of a prompt
    language: int | None = None  # its token; None: the model's only one, or it finds out
    translates: bool = False


class Window(NamedTuple):
    """Samples at 16 kHz, and whether words have times."""

    samples: Samples
    manner: Manner
    word_times: bool


class Heard(NamedTuple):
    """What a window says; `said` is empty where the model finds that nobody speaks."""

    reading: Reading
    temperature: float
    said: list[Said]
    aligned: Aligned | None
    language: int | None = None  # its token
    sure: float | None = None  # of the language, where the model found it out

    @property
    def is_cut_off(self) -> bool:
        """Whether there was more to say than a reading holds."""
        return len(self.reading.tokens) >= MAX_TOKENS

    def without_open_end(self) -> Heard:
        """Without the last stretch, if that is not the only one and no time closes it."""
        if len(self.said) < 2 or self.said[-1].end_ms is not None:
            return self
        return self._replace(said=self.said[:-1])

    @property
    def tokens(self) -> list[int]:
        """The text tokens."""
        return [token for stretch in self.said for token in stretch.tokens]


class WindowReader:
    """One model and its features."""

    def __init__(self, model: WhisperModel) -> None:
        self._model = model
        self._features = LogMel(model.num_mel_bins)

    def read(self, windows: Sequence[Window]) -> list[Heard]:
        """Read windows of one manner in one batch; what is doubtful alone again."""
        manner = windows[0].manner
        features = self._features([window.samples for window in windows])
        encoded = self._model.encode(features)
        spoken = self._languages(encoded, manner, len(windows))
        prompts = [(*manner.before, *self._start(manner, language)) for language, _ in spoken]
        readings = self._model.read(encoded, prompts, manner.beam)
        found = []
        for row, reading in enumerate(readings):
            believed, temperature = self._believed(reading, features[row : row + 1], prompts[row])
            said = [] if is_silence(believed) else self._model.tokens.said(believed.tokens)
            found.append(Heard(believed, temperature, said, None, *spoken[row]))
        if any(
            window.word_times and heard.said for window, heard in zip(windows, found, strict=True)
        ):
            return self._aligned(windows, found, encoded)
        return found

    def _languages(
        self, encoded: object, manner: Manner, rows: int
    ) -> list[tuple[int | None, float | None]]:
        """The token of each window's language, and how sure the model is that found it."""
        if manner.language is not None or not self._model.is_multilingual:
            return [(manner.language, None)] * rows
        return list(self._model.detect(encoded))

    def _start(self, manner: Manner, language: int | None) -> list[int]:
        tokens = self._model.tokens
        if language is None:
            return [tokens.start]
        task = tokens.translate if manner.translates else tokens.transcribe
        return [tokens.start, language, task]

    def _believed(
        self, first: Reading, features: Tensor, prompt: Sequence[int]
    ) -> tuple[Reading, float]:
        """The first reading that is not doubtful, and its temperature."""
        tried = [(first, self._text(first))]
        if not is_doubtful(*tried[0]):
            return first, 0.0
        model = self._model.loaded_anew()
        encoded = model.encode(features)
        for temperature in TEMPERATURES:
            reading = model.sample(encoded, prompt, temperature)
            tried.append((reading, self._text(reading)))
            if not is_doubtful(*tried[-1]):
                return reading, temperature
        best = best_of(tried)
        return tried[best][0], (0.0, *TEMPERATURES)[best]

    def _text(self, reading: Reading) -> str:
        tokens = self._model.tokens
        return tokens.text([t for stretch in tokens.said(reading.tokens) for t in stretch.tokens])

    def _aligned(
        self, windows: Sequence[Window], found: Sequence[Heard], encoded: object
    ) -> list[Heard]:
        tokens = [heard.tokens for heard in found]
        frames = [max(1, len(window.samples) // HOP_SAMPLES) for window in windows]
        # The library aligns all rows behind one start; which language it names hardly matters.
        start = self._start(windows[0].manner, found[0].language)
        aligned = self._model.align(encoded, start, tokens, frames)
        return [
            heard._replace(aligned=places if heard.said else None)
            for heard, places in zip(found, aligned, strict=True)
        ]
