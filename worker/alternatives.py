"""What the engine heard, on the media clock: the readings of a segment as records show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from oasr.audio.resample import MODEL_RATE
from oasr.decoding import words as engine_words
from oasr.decoding.stability import stable_count
from oasr.engine.request import RequestOutput

CONFIDENCE_DIGITS: Final = 3
# A confidence that is known is never 0.0, which many clients take for unknown.
LEAST_CONFIDENCE: Final = 10.0**-CONFIDENCE_DIGITS


@dataclass(frozen=True, slots=True)
class Word:
    """One word; samples are on the channel's media clock. An unknown confidence is None."""

    text: str
    start_sample: int
    end_sample: int
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """One reading; its `words` joined by blanks are `text`, where they were asked for."""

    text: str
    confidence: float | None = None
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment lies on the media clock; what is heard lies inside."""

    start_sample: int
    end_sample: int
    sample_rate: int

    def sample(self, model_samples: int) -> int:
        """The media sample of so many samples at the model's rate, from the segment's start on."""
        media_samples = model_samples * self.sample_rate // MODEL_RATE
        return min(self.start_sample + media_samples, self.end_sample)


def stable_part(output: RequestOutput, least: float) -> RequestOutput:
    """A partial without the words that are less stable than `least`, and those behind them.

    What is left of a text has no confidence: it was that of all.
    """
    count = stable_count(output.stability, least)
    if least <= 0.0 or count == len(output.stability):
        return output
    return replace(
        output,
        text=" ".join(output.text.split()[:count]),
        words=output.words[:count],
        stability=output.stability[:count],
        confidence=None,
    )


def alternatives_of(output: RequestOutput, place: Place) -> tuple[Alternative, ...]:
    """The readings of an output, the best first; there is always one."""
    if not output.nbest:
        return (_alternative(output.text, output.confidence, output.words, place),)
    return tuple(_alternative(r.text, r.confidence, r.words, place) for r in output.nbest)


def _alternative(
    text: str, confidence: float | None, words: Sequence[engine_words.Word], place: Place
) -> Alternative:
    return Alternative(
        text,
        _rounded(confidence),
        tuple(
            Word(
                word.text,
                place.sample(word.start_sample),
                place.sample(word.end_sample),
                _rounded(word.confidence),
            )
            for word in words
        ),
    )


def _rounded(confidence: float | None) -> float | None:
    if confidence is None:
        return None
    return max(round(confidence, CONFIDENCE_DIGITS), LEAST_CONFIDENCE)


def seconds(sample: int, sample_rate: int, position_ms: int = 0) -> float:
    """Media time of a sample in seconds, rounded to whole milliseconds."""
    return (position_ms + (2000 * sample + sample_rate) // (2 * sample_rate)) / 1000


def alternative_fields(
    alternative: Alternative, sample_rate: int, position_ms: int
) -> dict[str, Any]:
    """A reading as records show it: what is not known is not there."""
    fields: dict[str, Any] = {"transcript": alternative.text}
    if alternative.confidence is not None:
        fields["confidence"] = alternative.confidence
    if alternative.words:
        fields["words"] = [_word_fields(w, sample_rate, position_ms) for w in alternative.words]
    return fields


def _word_fields(word: Word, sample_rate: int, position_ms: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "word": word.text,
        "start": seconds(word.start_sample, sample_rate, position_ms),
        "end": seconds(word.end_sample, sample_rate, position_ms),
    }
    if word.confidence is not None:
        fields["confidence"] = word.confidence
    return fields
