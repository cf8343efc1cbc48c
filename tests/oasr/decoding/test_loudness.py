"""The level track: independent of how audio comes in, and of what comes later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.loudness import LEVEL_SAMPLES, LoudnessTrack
from tests.support.engine import Samples, noise


def speech_between(begin: int, end: int, levels: int, noise_db: float) -> Samples:
    """Noise all along, and 10 ms levels `begin` … `end` at -20 dBFS."""
    rng = np.random.default_rng(1)
    gains = np.full(levels, 10 ** (noise_db / 20))
    gains[begin:end] = 0.1
    wave = rng.standard_normal(levels * LEVEL_SAMPLES) * np.repeat(gains, LEVEL_SAMPLES)
    return wave.astype(np.float32)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 20_000), max_size=8), st.integers(0, 21_000))
def test_the_same_sounds_are_heard_however_the_audio_came_and_whatever_follows(cuts, end_sample):
    audio = noise(20_000, 4)
    whole = LoudnessTrack()
    whole.push(audio[:end_sample])
    pieces = LoudnessTrack()
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), 20_000], strict=True):
        pieces.push(audio[begin:end])
        pieces.sounds(end)

    found = pieces.sounds(end_sample).heard

    np.testing.assert_array_equal(found, whole.sounds(end_sample).heard)
    assert len(found) == min(20_000, end_sample) // LEVEL_SAMPLES


@pytest.mark.parametrize("noise_db", [-100.0, -70.0, -45.0])
@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_speech_over_noise_is_heard_where_it_is(noise_db, offset):
    track = LoudnessTrack()
    track.push(speech_between(50, 90, 150, noise_db) + np.float32(offset))

    heard = np.flatnonzero(track.sounds(1 << 40).heard)

    assert heard[0] in (49, 50)
    assert heard[-1] in (89, 90)
    assert len(heard) == heard[-1] - heard[0] + 1


def test_noise_as_loud_as_speech_is_not_told_from_it():
    track = LoudnessTrack()
    track.push(speech_between(50, 90, 150, noise_db=-32.0))

    assert track.sounds(1 << 40).heard.all()


def test_no_audio_and_less_than_a_level_have_no_sounds():
    track = LoudnessTrack()
    assert len(track.sounds(100).heard) == 0

    track.push(noise(LEVEL_SAMPLES - 1, 1))

    assert len(track.sounds(100).heard) == 0
