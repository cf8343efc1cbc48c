"""Where on the media clock a message belongs, as far as its producer says.

Samples are counted, and what is counted is the clock. Where a message states the media time of
its first sample and that lies ahead, time is missing between it and what came before: lost with
messages whose numbers are missing too, else a pause in which the producer sent nothing. Times
that lie behind, or ahead by no more than the tolerance, are rounding and jitter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from worker.records import Gap

LEAST_MISSING_MS: Final = 2  # where messages are missing; times are rounded to milliseconds
MOST_MISSING_MS: Final = 24 * 3_600_000  # a time further ahead is no time of this call
PIECE_SAMPLES: Final = 8_000
_SILENCE: Final = np.zeros(PIECE_SAMPLES, np.int16)
_SILENCE.setflags(write=False)


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """How much of what is missing is put up with, and filled."""

    tolerance_ms: int = 200  # without a missing number, this much ahead is no pause
    max_fill_ms: int = 10_000  # what is longer is passed over

    def is_filled(self, samples: int, rate: int) -> bool:
        """Whether so many missing samples are filled with silence, not passed over."""
        return samples * 1000 <= self.max_fill_ms * rate


def missing_samples(
    stated_ms: int, at_sample: int, rate: int, limits: ClockLimits, is_gap: bool
) -> int:
    """Samples that are missing before a message whose first sample would be `at_sample`.

    `stated_ms` is the media time since sample 0 that the message states for it; `is_gap`, whether
    numbers are missing before it.
    """
    ahead = (stated_ms * rate + 500) // 1000 - at_sample
    least_ms = LEAST_MISSING_MS if is_gap else limits.tolerance_ms
    if ahead * 1000 <= least_ms * rate or ahead * 1000 > MOST_MISSING_MS * rate:
        return 0
    return ahead


def silence(samples: int) -> Iterator[NDArray[np.int16]]:
    """So many samples of digital silence in pieces, which take no memory of their own."""
    for start in range(0, samples, PIECE_SAMPLES):
        yield _SILENCE[: samples - start]


def overlap(gaps: Iterable[Gap], start_sample: int, end_sample: int) -> int:
    """How many samples of a stretch lie in gaps, which do not overlap each other."""
    shared = (min(gap.end_sample, end_sample) - max(gap.start_sample, start_sample) for gap in gaps)
    return sum(samples for samples in shared if samples > 0)


def lies_in(gap: Gap, start_sample: int, end_sample: int) -> bool:
    """Whether a gap, which may have no length, touches the inside of a stretch."""
    return gap.start_sample < end_sample and start_sample < gap.end_sample
