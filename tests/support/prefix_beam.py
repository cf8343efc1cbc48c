"""CTC prefix search written for reading, to compare the fast one with."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby, product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

BLANK = 0
LogProbs = NDArray[np.float32]  # (T, V)


class Reading(NamedTuple):
    tokens: tuple[int, ...]
    frames: tuple[int, ...]
    score: float


@dataclass
class Prefix:
    """What is known of a prefix; times are (frame, log posterior) of each token."""

    s: float = -math.inf
    ns: float = -math.inf
    v_s: float = -math.inf
    v_ns: float = -math.inf
    times_s: list[tuple[int, float]] = field(default_factory=list)
    times_ns: list[tuple[int, float]] = field(default_factory=list)

    @property
    def score(self) -> float:
        return float(np.logaddexp(self.s, self.ns))

    @property
    def viterbi(self) -> float:
        return max(self.v_s, self.v_ns)

    @property
    def times(self) -> list[tuple[int, float]]:
        return self.times_s if self.v_s > self.v_ns else self.times_ns

    def add_ns(self, ns: float, v_ns: float, times: list[tuple[int, float]]) -> None:
        self.ns = float(np.logaddexp(self.ns, ns))
        if v_ns > self.v_ns:
            self.v_ns, self.times_ns = v_ns, times


def published_search(log_probs: LogProbs, first_beam: int, second_beam: int) -> list[Reading]:
    """WeNet's search as published, but that a token's time is the peak of its run."""
    hyps: dict[tuple[int, ...], Prefix] = {(): Prefix(s=0.0, v_s=0.0)}
    for t, row in enumerate(torch.from_numpy(log_probs)):
        grown: dict[tuple[int, ...], Prefix] = defaultdict(Prefix)
        values, ids = row.topk(min(first_beam, len(row)))
        for p, u in zip(values.double().tolist(), ids.tolist(), strict=True):
            for prefix, hyp in hyps.items():
                if u == BLANK:
                    same = grown[prefix]
                    same.s = float(np.logaddexp(same.s, hyp.score + p))
                    same.v_s, same.times_s = hyp.viterbi + p, hyp.times
                elif prefix and u == prefix[-1]:
                    *rest, (frame, peak) = hyp.times_ns or [(t, -math.inf)]
                    end = (t, p) if p > peak else (frame, peak)
                    grown[prefix].add_ns(hyp.ns + p, hyp.v_ns + p, [*rest, end])
                    grown[*prefix, u].add_ns(hyp.s + p, hyp.v_s + p, [*hyp.times_s, (t, p)])
                else:
                    longer = grown[*prefix, u]
                    longer.add_ns(hyp.score + p, hyp.viterbi + p, [*hyp.times, (t, p)])
        best = sorted(grown.items(), key=lambda item: -item[1].score)
        hyps = dict(best[:second_beam])
    return [
        Reading(prefix, tuple(frame for frame, _ in hyp.times), hyp.score)
        for prefix, hyp in hyps.items()
        if hyp.score > -math.inf
    ]


def every_reading(log_probs: LogProbs) -> list[Reading]:
    """The log probability of every reading: all alignments, one by one. The best first."""
    totals: dict[tuple[int, ...], float] = defaultdict(lambda: -math.inf)
    best: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
    frames, vocabulary = log_probs.shape
    for path in product(range(vocabulary), repeat=frames):
        score = float(sum(np.float64(log_probs[t, u]) for t, u in enumerate(path)))
        runs = [list(run) for _, run in groupby(range(frames), key=path.__getitem__)]
        emitted = [run for run in runs if path[run[0]] != BLANK]
        tokens = tuple(path[run[0]] for run in emitted)
        totals[tokens] = float(np.logaddexp(totals[tokens], score))
        if score > best.get(tokens, (-math.inf, ()))[0]:
            peaks = tuple(max(run, key=lambda t: log_probs[t, path[t]]) for run in emitted)
            best[tokens] = score, peaks
    readings = [Reading(tokens, best[tokens][1], score) for tokens, score in totals.items()]
    return sorted(readings, key=lambda reading: -reading.score)
