"""Which waiting requests share a forward: policies of choice, guards on padding, splits.

A batch costs its longest row times its width; what it computes beyond the rows' own frames is
padding. Every function here only chooses: queues and requests are left as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from itertools import accumulate, pairwise
from operator import sub

from oasr.engine.config import EngineConfig
from oasr.engine.request import Request


@dataclass(frozen=True, slots=True)
class Guards:
    """Bounds on the padding of one batch; 0 or None switches one off."""

    length_bucket_ratio: float = 0.0  # least min / max
    max_pad_ratio: float = 0.0  # most max · rows / sum
    max_run_frames: int | None = None  # most max · rows, of window runs alone

    @classmethod
    def of(cls, config: EngineConfig) -> Guards:
        return cls(
            config.length_bucket_ratio, config.max_offline_pad_ratio, config.max_batch_frames
        )

    def allow(self, shortest: int, longest: int, total: int, rows: int) -> bool:
        """Whether `rows` rows of `total` frames in all may be one batch."""
        if longest == 0:
            return True  # nothing to compute, so nothing to waste
        if self.length_bucket_ratio > 0 and shortest / longest < self.length_bucket_ratio:
            return False
        # `total` may be 0 no more: the longest row is part of it.
        return not self.max_pad_ratio > 0 or longest * rows / total <= self.max_pad_ratio

    def allow_run(self, shortest: int, longest: int, total: int, rows: int) -> bool:
        """`allow`, and the run's padded size fits one forward."""
        if self.max_run_frames is not None and longest * rows > self.max_run_frames:
            return False
        return self.allow(shortest, longest, total, rows)


def first_fit(candidates: Iterable[Request], max_rows: int, guards: Guards) -> list[Request]:
    """The first candidate and every later one that the guards let join, up to `max_rows`."""
    batch: list[Request] = []
    shortest = longest = total = 0
    for request in candidates:
        frames = request.num_frames
        low = min(shortest, frames) if batch else frames
        high = max(longest, frames)
        if batch and not guards.allow(low, high, total + frames, len(batch) + 1):
            continue
        batch.append(request)
        shortest, longest, total = low, high, total + frames
        if len(batch) == max_rows:
            break
    return batch


def least_padded_run(window: Sequence[Request], max_rows: int, guards: Guards) -> list[Request]:
    """The run of lengths with the oldest request and the least padding, in queue order.

    `window` is in queue order and not empty. The run is as wide as the guards allow, up to
    `max_rows`; of runs with equal padding it is the one whose members are older. The oldest
    request alone is always allowed.
    """
    lengths = [request.num_frames for request in window]
    order = _by_length(lengths)
    anchor = order.index(0)
    # No run with the anchor reaches further than this.
    places = order[max(0, anchor - max_rows + 1) : anchor + max_rows]
    ranked = [lengths[place] for place in places]
    for rows in range(min(max_rows, len(window)), 1, -1):
        runs = _runs(places, ranked, rows)
        while runs:
            padding, _, start = heappop(runs)
            end = start + rows
            longest = ranked[end - 1]
            if guards.allow_run(ranked[start], longest, longest * rows - padding, rows):
                return [window[place] for place in sorted(places[start:end])]
    return [window[0]]


def _by_length(lengths: Sequence[int]) -> list[int]:
    """Places in order of length, such that a run takes the older ones of equals.

    A run can part a group of equals at its short end, below the length of place 0, or at its
    long end, above it; the younger ones are turned to the outside.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    anchor = order.index(0)
    shorter = sorted(order[:anchor], key=lengths.__getitem__, reverse=True)
    return shorter[::-1] + order[anchor:]


def _runs(places: Sequence[int], ranked: Sequence[int], rows: int) -> list[tuple[int, int, int]]:
    """A heap of (padding, sum of places, start) of the runs of `rows` that hold place 0.

    `ranked` are the lengths at `places`, rising. A smaller sum of places means older members.
    """
    anchor = places.index(0)
    first, last = max(0, anchor - rows + 1), min(anchor, len(places) - rows)
    totals = list(accumulate(ranked, initial=0))
    ages = list(accumulate(places, initial=0))
    ends = slice(first + rows, last + rows + 1)
    starts = slice(first, last + 1)
    longest = ranked[first + rows - 1 : last + rows]
    padding = map(sub, map(rows.__mul__, longest), map(sub, totals[ends], totals[starts]))
    age = map(sub, ages[ends], ages[starts])
    runs = list(zip(padding, age, range(first, last + 1), strict=True))
    heapify(runs)
    return runs


def largest_preferred(sizes: Sequence[int], limit: int) -> int:
    """The largest of the rising `sizes` that is at most `limit`; 0 if there is none."""
    fitting = bisect_right(sizes, limit)
    return sizes[fitting - 1] if fitting else 0


def split_batch(
    batch: Sequence[Request], config: EngineConfig
) -> tuple[list[list[Request]], list[int] | None]:
    """The forwards of one batch, and the places in `batch` of their rows one after another.

    The places are None where the batch is one forward as it stands. Forwards are cut from the
    batch in order of length: by `max_batch_frames` where it is set (a row over it goes alone),
    else at preferred sizes, else evenly up to `max_batch_size`.
    """
    order = sorted(range(len(batch)), key=lambda place: batch[place].num_frames)
    if config.max_batch_frames is not None:
        frames = [batch[place].num_frames for place in order]
        sizes = _sizes_by_frames(frames, config.max_batch_size, config.max_batch_frames)
    elif config.preferred_batch_size is not None:
        sizes = _preferred_sizes(len(batch), config.preferred_batch_size)
    else:
        sizes = _even_sizes(len(batch), config.max_batch_size)
    if len(sizes) <= 1:
        return [list(batch)] if batch else [], None
    edges = accumulate(sizes, initial=0)
    return [[batch[place] for place in order[start:end]] for start, end in pairwise(edges)], order


def _sizes_by_frames(frames: Sequence[int], max_rows: int, max_frames: int) -> list[int]:
    """Row counts of the forwards of rising `frames`, each within `max_frames` when padded."""
    sizes: list[int] = []
    rows = 0
    for longest in frames:
        if rows and (rows == max_rows or longest * (rows + 1) > max_frames):
            sizes.append(rows)
            rows = 0
        rows += 1
    return [*sizes, rows] if rows else sizes


def _preferred_sizes(rows: int, preferred: Sequence[int]) -> list[int]:
    sizes = []
    while rows:
        sizes.append(largest_preferred(preferred, rows) or rows)
        rows -= sizes[-1]
    return sizes


def _even_sizes(rows: int, max_rows: int) -> list[int]:
    count = -(-rows // max_rows)
    return [(rows + place) // count for place in range(count)]
