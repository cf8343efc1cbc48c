"""Words of a token sequence: their text, when they were said, how sure they are.

A CTC token peaks somewhere in the later part of its sound. A word begins and ends with the sound
around its peaks, where that stands out; in running speech and in noise it begins a little before
its first peak and ends a little after its last. No word passes the point half-way to the peak of
a neighbour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oasr.decoding.loudness import Sounds
from oasr.decoding.tokenizer import WORD_START, Tokenizer

LEAD_SAMPLES: Final = 16 * 100  # from a word's begin to its first peak, 16 kHz
TAIL_SAMPLES: Final = 16 * 40  # from a word's last peak to its end

_WORD: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a transcript; samples at 16 kHz since the request's first sample."""

    text: str
    start_sample: int
    end_sample: int
    confidence: float | None = None  # mean posterior of its tokens; None: not asked for


def confidence(scores: Sequence[float]) -> float | None:
    """The mean posterior of tokens with these log posteriors, in (0, 1]; None without tokens."""
    return math.fsum(map(math.exp, scores)) / len(scores) if scores else None


def words_of(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    token_frames: Sequence[int],
    scores: Sequence[float],
    frame_samples: int,
    end_sample: int,
    sounds: Sounds | None = None,
) -> list[Word]:
    """The words of a reading; joined by blanks they are `tokenizer.decode(tokens)`.

    `token_frames` rise; a frame begins every `frame_samples`. Times rise and stay within 0 and
    `end_sample`: no word ends before it begins or after the next one begins.
    """
    spans = _token_spans(tokenizer, tokens)
    peaks = [frame * frame_samples for frame in token_frames]
    if sounds is not None:
        peaks = [sounds.settle(peak) for peak in peaks]
    words: list[Word] = []
    earliest = 0
    for index, (text, first, last) in enumerate(spans):
        is_last = index + 1 == len(spans)
        latest = end_sample if is_last else (peaks[last] + peaks[spans[index + 1][1]]) // 2
        start, end = _edges(peaks[first], peaks[last], earliest, max(latest, peaks[last]), sounds)
        earliest = latest
        sure = confidence(scores[first : last + 1])
        words.append(Word(text, min(start, end_sample), min(max(start, end), end_sample), sure))
    return words


def _edges(
    first_peak: int, last_peak: int, earliest: int, latest: int, sounds: Sounds | None
) -> tuple[int, int]:
    start = end = None
    if sounds is not None:
        start = sounds.begin(first_peak, earliest)
    if start is None:
        start = max(earliest, first_peak - LEAD_SAMPLES)
    if sounds is not None:
        end = sounds.end(last_peak, latest)
    if end is None:
        end = min(latest, last_peak + TAIL_SAMPLES)
    return start, end


def _token_spans(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[tuple[str, int, int]]:
    """Each word with its first and its last token; the mark that begins a word belongs to it."""
    pieces = [tokenizer.piece(token) for token in tokens]
    owners = [index for index, piece in enumerate(pieces) for _ in piece]
    text = "".join(pieces)
    return [
        (
            match.group(),
            owners[match.start() - (text[match.start() - 1 : match.start()] == WORD_START)],
            owners[match.end() - 1],
        )
        for match in _WORD.finditer(text.replace(WORD_START, " "))
    ]
