"""What each gate takes for speech that is none, and what it misses; prints one JSON line each.

    python benchmarks/background.py --seconds 30

Backgrounds of a telephone line by formula: white and low-passed noise, breath (slow bursts of
noise), hum, music (chords with drums), clicks. `false_share` is the part of a background alone
that lies in segments. `missed_share` is the part of real utterances, mixed in 12 dB above the
background, that lies in none, and `kept_share` the part of the pauses between them that lies
outside all.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import soxr
from numpy.typing import NDArray
from support.joined_speech import Int16Array, utterances

from oasr.audio.gates import Vad
from oasr.audio.segmenter import Audio, EndReason, Opened, Segmenter, SegmenterConfig

RATE = 8_000
SPEECH_DBFS = -26
BELOW_SPEECH_DB = 12

Wave = NDArray[np.float64]


def white(count: int, rng: np.random.Generator) -> Wave:
    return rng.normal(size=count)


def low_passed(count: int, rng: np.random.Generator) -> Wave:
    spectrum = np.fft.rfft(rng.normal(size=count))
    hz = np.fft.rfftfreq(count, 1 / RATE)
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(hz, 50)), count)


def breath(count: int, rng: np.random.Generator) -> Wave:
    """Half a second to a second in and out, every three seconds."""
    envelope = np.full(count, 0.03)
    at = RATE
    while at < count:
        length = round(float(rng.uniform(0.5, 1.0)) * RATE)
        shape = np.sin(np.linspace(0, np.pi, length))[: count - at]
        envelope[at : at + length] += shape
        at += length + round(float(rng.uniform(1.5, 2.5)) * RATE)
    return low_passed(count, rng) * envelope


def hum(count: int, rng: np.random.Generator) -> Wave:
    """Mains hum with harmonics, a little unsteady."""
    time_s = np.arange(count) / RATE
    swell = 1 + 0.2 * np.sin(2 * np.pi * 0.3 * time_s)
    tones = sum(
        np.sin(2 * np.pi * 50 * k * time_s + rng.uniform(0, 6)) / k for k in (1, 2, 3, 5, 7)
    )
    return np.asarray(swell * tones)


def music(count: int, rng: np.random.Generator) -> Wave:
    """Four chords in turn, plucked twice a second, and a drum on every beat."""
    wave = np.zeros(count)
    chords = ((220, 277, 330), (196, 247, 294), (175, 220, 262), (165, 208, 247))
    for beat, at in enumerate(range(0, count, RATE // 2)):
        length = min(RATE, count - at)
        time_s = np.arange(length) / RATE
        for tone in chords[beat // 4 % 4]:
            for k in range(1, 5):
                wave[at : at + length] += (
                    np.sin(2 * np.pi * tone * k * time_s) * np.exp(-3 * time_s) / k
                )
        wave[at : at + length] += rng.normal(size=length) * np.exp(-40 * time_s)
    return wave


def clicks(count: int, rng: np.random.Generator) -> Wave:
    wave = rng.normal(scale=0.001, size=count)
    wave[rng.integers(0, count, count // RATE * 2)] = 1.0
    return wave


BACKGROUNDS = {f.__name__: f for f in (white, low_passed, breath, hum, music, clicks)}


def at_level(wave: Wave, dbfs: float) -> Wave:
    return wave / np.sqrt(np.mean(wave**2)) * 32768 * 10 ** (dbfs / 20)


def speech(seconds: float, rng: np.random.Generator) -> tuple[Wave, NDArray[np.bool_]]:
    """Utterances with pauses of 1 to 3 s, and where they are."""
    count = round(seconds * RATE)
    wave, spoken = np.zeros(count), np.zeros(count, dtype=bool)
    at = RATE
    while True:
        utterance = utterances()[int(rng.integers(len(utterances())))]
        samples = soxr.resample(utterance.samples.astype(np.float64), 2 * RATE, RATE)
        if at + len(samples) + RATE > count:
            return wave, spoken
        wave[at : at + len(samples)] = at_level(samples, SPEECH_DBFS)
        spoken[at : at + len(samples)] = True
        at += len(samples) + round(float(rng.uniform(1, 3)) * RATE)


def inside(samples: Int16Array, vad: Vad) -> tuple[NDArray[np.bool_], float]:
    """Which samples lie in segments, and the CPU microseconds for each 100 ms."""
    segmenter = Segmenter(RATE, 0, SegmenterConfig(vad=vad))
    marked = np.zeros(len(samples), dtype=bool)
    started_s = time.process_time()
    events = []
    for begin in range(0, len(samples), RATE // 10):
        events += segmenter.feed(samples[begin : begin + RATE // 10])
    cpu_s = time.process_time() - started_s
    for event in [*events, *segmenter.cut_at_end(EndReason.END)]:
        if not isinstance(event, Opened | Audio) and event.start_sample is not None:
            marked[event.start_sample : event.sample] = True
    return marked, cpu_s / (len(samples) / RATE * 10) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    for name, make in BACKGROUNDS.items():
        for vad in Vad:
            rng = np.random.default_rng(1)
            back = at_level(make(round(options.seconds * RATE), rng), SPEECH_DBFS - BELOW_SPEECH_DB)
            wave, spoken = speech(options.seconds, rng)
            alone, cpu_us = inside(np.rint(np.clip(back, -32768, 32767)).astype(np.int16), vad)
            both = np.clip(wave + back, -32768, 32767)
            heard, _ = inside(np.rint(both).astype(np.int16), vad)
            report = {
                "background": name,
                "vad": vad.value,
                "false_share": round(float(alone.mean()), 3),
                "missed_share": round(float((~heard[spoken]).mean()), 3),
                "kept_share": round(float((~heard[~spoken]).mean()), 3),
                "us_per_100_ms": round(cpu_us),
            }
            print(json.dumps({"benchmark": "background", "seconds": options.seconds, **report}))


if __name__ == "__main__":
    main()
