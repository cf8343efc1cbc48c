"""When a reading of Whisper is not to be believed: the published thresholds."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from oasr.models.whisper.model import Reading

TEMPERATURES: Final = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the readings that are tried after the first
MOST_COMPRESSION: Final = 2.4  # a text that packs better repeats itself
LEAST_LOG_PROB: Final = -1.0
MOST_NO_SPEECH: Final = 0.6


def compression(text: str) -> float:
    """How many times smaller a text becomes when it is packed; 0 for none."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


def is_silence(reading: Reading) -> bool:
    """Whether the model itself doubts that anybody speaks, and what was said."""
    return reading.no_speech > MOST_NO_SPEECH and reading.log_prob < LEAST_LOG_PROB


def is_doubtful(reading: Reading, text: str) -> bool:
    """Whether the window is to be read once more, at a higher temperature."""
    if is_silence(reading):
        return False
    return compression(text) > MOST_COMPRESSION or reading.log_prob < LEAST_LOG_PROB


def best_of(tried: Sequence[tuple[Reading, str]]) -> int:
    """Of readings that are all doubtful: the likeliest that does not repeat itself, else of all."""
    plain = [i for i, (_, text) in enumerate(tried) if compression(text) <= MOST_COMPRESSION]
    return max(plain or range(len(tried)), key=lambda i: tried[i][0].log_prob)
