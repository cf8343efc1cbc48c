"""Real speech of the test lists, joined with pauses, noise and clicks, at any rate."""

from __future__ import annotations

from functools import cache

import numpy as np
import soxr

from tests.support.signals import Int16Array, mix, noise
from tests.support.testsets import read_list

LIST_RATE = 16_000


@cache
def spoken(rate: int) -> tuple[Int16Array, ...]:
    """Some utterances at a rate."""
    files = [samples for name in ("phrases", "human_digits") for samples, _ in read_list(name)[:25]]
    return tuple(
        np.rint(np.clip(soxr.resample(samples, LIST_RATE, rate), -1, 1) * 32767).astype(np.int16)
        for samples in files
    )


def talk(seconds: float, rate: int, seed: int) -> Int16Array:
    """Utterances, some right after each other, some after seconds of noise."""
    rng = np.random.default_rng(seed)
    parts: list[Int16Array] = []
    total = 0
    while total < seconds * rate:
        part = spoken(rate)[int(rng.integers(len(spoken(rate))))]
        gain = float(rng.uniform(0.1, 1.0))
        pause = np.zeros(round(float(rng.choice([0.0, 0.3, 1.5, 4.0])) * rate), np.int16)
        parts += [np.rint(part * gain).astype(np.int16), pause]
        total += len(part) + len(pause)
    signal = np.concatenate(parts)[: round(seconds * rate)]
    return mix(signal, noise(seconds, rate, float(rng.uniform(-75, -45)), seed))
