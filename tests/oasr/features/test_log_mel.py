from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from oasr.features.log_mel import WINDOW_SAMPLES, LogMel

FFT, HOP, FRAMES = 400, 160, 3000
RATE = 16_000


def slaney_mel(hz: float) -> float:
    """Linear to 1000 Hz, then 27 steps to each factor of 6.4."""
    return hz * 3 / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)


def slaney_hz(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp(math.log(6.4) * (mel - 15) / 27)


def filter_bank(num_mel_bins: int) -> NDArray[np.float64]:
    """Triangles of equal area, between points that are equally far apart in mel."""
    top = slaney_mel(RATE / 2)
    points = [slaney_hz(top * i / (num_mel_bins + 1)) for i in range(num_mel_bins + 2)]
    filters = np.zeros((num_mel_bins, FFT // 2 + 1))
    for k in range(FFT // 2 + 1):
        hz = k * RATE / FFT
        for m in range(num_mel_bins):
            low, peak, high = points[m : m + 3]
            height = min((hz - low) / (peak - low), (high - hz) / (high - peak))
            filters[m, k] = max(0.0, height) * 2 / (high - low)
    return filters


def reference(audio: NDArray[np.float32], num_mel_bins: int) -> NDArray[np.float64]:
    """The published formula in double precision, frame by frame."""
    padded = np.zeros(WINDOW_SAMPLES)
    padded[: len(audio)] = audio
    padded = np.pad(padded, FFT // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)
    frames = np.stack([padded[i * HOP : i * HOP + FFT] * window for i in range(FRAMES)])
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    found = np.log10(np.maximum(filter_bank(num_mel_bins) @ power.T, 1e-10))
    return (np.maximum(found, found.max() - 8) + 4) / 4


def pieces() -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    noise = (rng.standard_normal(50_000) * 0.1).astype(np.float32)
    tone = (0.5 * np.sin(np.arange(WINDOW_SAMPLES) * 2 * np.pi * 440 / RATE)).astype(np.float32)
    return [noise, tone, np.zeros(0, np.float32), noise[:1]]


@pytest.mark.parametrize("num_mel_bins", [80, 128])
def test_features_are_those_of_the_published_filter_bank(num_mel_bins: int) -> None:
    found = LogMel(num_mel_bins)(pieces())

    assert found.shape == (4, num_mel_bins, FRAMES)
    for row, piece in zip(found, pieces(), strict=True):
        np.testing.assert_allclose(row.numpy(), reference(piece, num_mel_bins), atol=1e-4)


def test_a_row_does_not_depend_on_its_mates() -> None:
    log_mel = LogMel(80)

    together = log_mel(pieces())

    for row, piece in zip(together, pieces(), strict=True):
        np.testing.assert_array_equal(row, log_mel([piece])[0])


def test_more_than_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="480000"):
        LogMel(80)([np.zeros(WINDOW_SAMPLES + 1, np.float32)])
