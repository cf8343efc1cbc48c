"""What the resampler does to tones, beside torchaudio's; prints one JSON line.

    python benchmarks/resampling.py

One tone at a time, 2 s long and at −6 dBFS, is converted to 16 kHz at 40 frequencies of each
band; the middle second is measured by its projection on a sine of the frequency:

- `ripple_db`: the largest deviation from the tone's level, up to 0.9 of the lower Nyquist rate;
- `spurious_db`: the strongest line beside the tone there (images, quantisation, filter);
- `alias_db`: the strongest output of tones from 1.1 times 8 kHz on, which should give nothing.

Both converters hear the same int16 samples; torchaudio runs with `lowpass_filter_width=64` and
`rolloff=0.95`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import torch
import torchaudio
from numpy.typing import NDArray

from oasr.audio.resample import MODEL_RATE, Resampler

RATES = (8_000, 11_025, 22_050, 32_000, 44_100, 48_000)
LEVEL = 0.5
SECONDS = 2
Floats = NDArray[np.float64]
Converter = Callable[[NDArray[np.int16], int], Floats]


def ours(samples: NDArray[np.int16], rate: int) -> Floats:
    """Our resampler, in messages of 20 ms."""
    resampler = Resampler(rate)
    step = rate // 50
    parts = [resampler.push(samples[at : at + step]) for at in range(0, len(samples), step)]
    return np.concatenate([*parts, resampler.flush()]).astype(np.float64)


def reference(samples: NDArray[np.int16], rate: int) -> Floats:
    """torchaudio's windowed sinc."""
    wave = torch.from_numpy(samples.astype(np.float32) / 32768)
    converted: NDArray[np.float32] = torchaudio.functional.resample(
        wave, rate, MODEL_RATE, lowpass_filter_width=64, rolloff=0.95
    ).numpy()
    return converted.astype(np.float64)


def tone(rate: int, hz: float) -> NDArray[np.int16]:
    """A sine as int16, dithered so that its rounding is noise and no tone."""
    time_s = np.arange(rate * SECONDS) / rate
    dither = np.random.default_rng(3).triangular(-1, 0, 1, len(time_s))
    wave = np.rint(LEVEL * 32768 * np.sin(2 * np.pi * hz * time_s) + dither)
    return wave.astype(np.int16)


def middle(wave: Floats) -> Floats:
    """The middle second, where no edge is heard."""
    start = (len(wave) - MODEL_RATE) // 2
    return wave[start : start + MODEL_RATE]


def in_band(convert: Converter, rate: int, hz: float) -> tuple[float, float]:
    """Level of the tone and of the strongest line beside it, in dB relative to the tone sent."""
    heard = middle(convert(tone(rate, hz), rate))
    time_s = np.arange(len(heard)) / MODEL_RATE
    basis = np.stack([np.sin(2 * np.pi * hz * time_s), np.cos(2 * np.pi * hz * time_s)], axis=1)
    parts, *_ = np.linalg.lstsq(basis, heard, rcond=None)
    rest = heard - basis @ parts
    return decibels(float(np.hypot(*parts)) / LEVEL), decibels(strongest(rest) / LEVEL)


def strongest(wave: Floats) -> float:
    """The amplitude of the strongest spectral line."""
    window = np.blackman(len(wave))
    return float(2 * np.abs(np.fft.rfft(wave * window)).max() / window.sum())


def decibels(ratio: float) -> float:
    """An amplitude ratio in dB."""
    return float(20 * np.log10(max(ratio, 1e-12)))


def measured(convert: Converter, rate: int) -> dict[str, float]:
    """The three figures of a converter at a rate."""
    nyquist = min(rate, MODEL_RATE) / 2
    passed = [in_band(convert, rate, hz) for hz in np.linspace(50, 0.9 * nyquist, 40)]
    figures = {
        "ripple_db": round(max(abs(level) for level, _ in passed), 3),
        "spurious_db": round(max(rest for _, rest in passed), 1),
    }
    lowest, top = 1.1 * MODEL_RATE / 2, 0.98 * rate / 2
    if lowest < top:
        blocked = [
            strongest(middle(convert(tone(rate, hz), rate))) for hz in np.linspace(lowest, top, 40)
        ]
        figures["alias_db"] = round(decibels(max(blocked) / LEVEL), 1)
    return figures


def main() -> None:
    """Measure and print."""
    found = {
        str(rate): {"ours": measured(ours, rate), "torchaudio": measured(reference, rate)}
        for rate in RATES
    }
    print(json.dumps({"benchmark": "resampling", "to_rate": MODEL_RATE, "rates": found}))


if __name__ == "__main__":
    main()
