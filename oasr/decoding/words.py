"""Words of a token sequence: their text, when they were said, how sure they are.

A CTC token is emitted late in the sound that it stands for. A word therefore begins before the
peak of its first token and ends a little after the peak of its last one; between words that are
closer the border is half-way between the peaks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
) -> list[Word]:
    """The words of a reading; joined by blanks they are `tokenizer.decode(tokens)`.

    `token_frames` rise; a frame begins every `frame_samples`. Times rise and stay within 0 and
    `end_sample`: no word ends before it begins or after the next one begins.
    """
    spans = _token_spans(tokenizer, tokens)
    peaks = [frame * frame_samples for frame in token_frames]
    words: list[Word] = []
    earliest = 0
    for index, (text, first, last) in enumerate(spans):
        start = max(earliest, peaks[first] - LEAD_SAMPLES)
        end = peaks[last] + TAIL_SAMPLES
        if index + 1 < len(spans):
            border = (peaks[last] + peaks[spans[index + 1][1]]) // 2
            end = min(end, border)
            earliest = border
        sure = confidence(scores[first : last + 1])
        words.append(Word(text, min(start, end_sample), min(max(start, end), end_sample), sure))
    return words


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
