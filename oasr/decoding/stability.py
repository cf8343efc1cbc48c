"""How likely the words of a partial are to stay: 1 where nothing can change them any more.

A stream's encoder frames never change once they are computed, so a reading changes in two ways
only: the word that was said last goes on, and, in a beam, another reading comes to the front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

# Whether the last word goes on after so many frames of 40 ms since its last token: measured on the
# lists of the bundled model; docs/decoding.md says how well it fits.
GOES_ON_AT_ONCE: Final = 0.24
FORGETS_FRAMES: Final = 2.5

# The readings of a beam give way less often than their shares say: a share s counts as
# 1 − (1 − s)^k. A second pass may turn to any of them.
BEAM_EXPONENT: Final = 3.0
RESCORED_EXPONENT: Final = 1.5


def stabilities(
    readings: Sequence[tuple[Sequence[str], float]],
    frames_since_last_token: int,
    exponent: float = 1.0,
) -> tuple[float, ...]:
    """For each word of the first reading the probability that the text up to it stays.

    `readings` are the words and the score, a natural logarithm, of each reading of the beam, the
    best first; greedy search has one. `exponent` is that of the search, at least 1. The result
    falls from word to word.
    """
    words = readings[0][0]
    best = max(score for _, score in readings)
    shares = [math.exp(score - best) for _, score in readings]
    agreeing = [0.0] * (len(words) + 1)
    for (other, _), share in zip(readings, shares, strict=True):
        agreeing[_common(words, other)] += share
    # who agrees on more words agrees on fewer, too
    support, found = 0.0, []
    for count in range(len(words), 0, -1):
        support += agreeing[count]
        doubt = max(0.0, 1.0 - support / math.fsum(shares))
        found.append(1.0 - doubt**exponent)
    found.reverse()
    if found:
        goes_on = GOES_ON_AT_ONCE * math.exp(-max(0, frames_since_last_token) / FORGETS_FRAMES)
        found[-1] *= 1.0 - goes_on
    return tuple(found)


def stable_count(stability: Sequence[float], least: float) -> int:
    """How many words, from the first on, are at least so stable."""
    return sum(1 for _ in takewhile(lambda value: value >= least, stability))


def _common(words: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(words, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
