"""Signals made by formula, as int16 with levels in dBFS."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]


def _at_level(wave: npt.NDArray[np.float64], dbfs: float) -> Int16Array:
    rms = np.sqrt(np.mean(wave**2)) or 1.0
    return np.rint(np.clip(wave / rms * 32768 * 10 ** (dbfs / 20), -32768, 32767)).astype(np.int16)


def silence(seconds: float, rate: int = 8000) -> Int16Array:
    """Digital silence."""
    return np.zeros(round(seconds * rate), np.int16)


def noise(seconds: float, rate: int = 8000, dbfs: float = -50, seed: int = 0) -> Int16Array:
    """White noise."""
    return _at_level(np.random.default_rng(seed).normal(size=round(seconds * rate)), dbfs)


def hum(seconds: float, rate: int = 8000, dbfs: float = -50) -> Int16Array:
    """Mains hum with its third harmonic."""
    time_s = np.arange(round(seconds * rate)) / rate
    return _at_level(np.sin(100 * np.pi * time_s) + 0.4 * np.sin(300 * np.pi * time_s), dbfs)


def speech(seconds: float, rate: int = 8000, dbfs: float = -25, seed: int = 0) -> Int16Array:
    """Harmonics of a gliding voice in four syllables a second, 20 dB between peak and dip."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(round(seconds * rate)) / rate
    pitch_hz = 120 + 20 * np.sin(2 * np.pi * 0.7 * time_s + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate
    harmonics = range(1, min(25, int(rate * 0.45 / 140)))
    voice = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in harmonics)
    syllables = 0.1 + 0.9 * np.abs(np.sin(2 * np.pi * 2 * time_s + np.pi / 4))
    return _at_level(np.asarray(voice * syllables), dbfs)


def mix(*signals: Int16Array) -> Int16Array:
    """The sum of signals of equal length."""
    total = np.sum([signal.astype(np.int64) for signal in signals], axis=0)
    return np.clip(total, -32768, 32767).astype(np.int16)


def join(*signals: Int16Array) -> Int16Array:
    """One signal after the other."""
    return np.concatenate(signals)


def conversation(seconds: float, rate: int, seed: int) -> Int16Array:
    """Words, pauses, clicks and noise of random lengths and levels."""
    rng = np.random.default_rng(seed)
    parts: list[Int16Array] = []
    total = 0
    while total < seconds * rate:
        length_s = float(rng.choice([0.05, 0.2, 0.6, 1.5, 4.0])) * float(rng.uniform(0.5, 1.5))
        part_seed = int(rng.integers(1 << 30))
        kind = rng.integers(5)
        if kind == 0:
            part = silence(length_s, rate)
        elif kind == 1:
            part = noise(length_s, rate, float(rng.uniform(-75, -40)), part_seed)
        else:
            part = speech(length_s, rate, float(rng.uniform(-45, -12)), part_seed)
        parts.append(part)
        total += len(part)
    signal = np.concatenate(parts)[: round(seconds * rate)]
    return mix(signal, noise(seconds, rate, float(rng.uniform(-80, -50)), seed))
