from __future__ import annotations

import numpy as np
import pytest
import soundfile

from oasr.audio.voiced import Voice, find_voices
from tests.support.whisper import SPEECH

RATE = 16_000
WINDOW = 512  # samples of 32 ms at 16 kHz


@pytest.fixture
def voice() -> Voice:
    is_voiced = np.array([False, False, True, True, True, False, True, True, True, False])
    return Voice(is_voiced, 2 * WINDOW, 9 * WINDOW)


@pytest.mark.parametrize(
    ("stretch", "within"),
    [
        ((0, 10 * WINDOW), (2 * WINDOW, 9 * WINDOW)),
        ((2 * WINDOW + 7, 5 * WINDOW - 7), (2 * WINDOW + 7, 5 * WINDOW - 7)),
        ((4 * WINDOW, 6 * WINDOW), (4 * WINDOW, 5 * WINDOW)),  # a pause ends the word before it
        ((5 * WINDOW, 8 * WINDOW), (6 * WINDOW, 8 * WINDOW)),
        ((5 * WINDOW, 6 * WINDOW), (5 * WINDOW, 6 * WINDOW)),  # nothing to go by
        ((70 * WINDOW, 80 * WINDOW), (70 * WINDOW, 80 * WINDOW)),
    ],
)
def test_a_word_is_as_long_as_its_voice(
    voice: Voice, stretch: tuple[int, int], within: tuple[int, int]
) -> None:
    assert voice.within(*stretch) == within


@pytest.mark.parametrize(
    ("margin", "samples", "stretches"),
    [
        (0, 10 * WINDOW, [(2 * WINDOW, 5 * WINDOW), (6 * WINDOW, 9 * WINDOW)]),
        (
            100,
            10 * WINDOW,
            [(2 * WINDOW - 100, 5 * WINDOW + 100), (6 * WINDOW - 100, 9 * WINDOW + 100)],
        ),
        (WINDOW // 2, 10 * WINDOW, [(2 * WINDOW - WINDOW // 2, 9 * WINDOW + WINDOW // 2)]),
        (9 * WINDOW, 10 * WINDOW - 7, [(0, 10 * WINDOW - 7)]),
    ],
)
def test_what_lies_near_no_voice_is_left_out(
    voice: Voice, margin: int, samples: int, stretches: list[tuple[int, int]]
) -> None:
    assert voice.stretches(margin, samples) == stretches


def test_clicks_before_and_behind_the_voice_are_left_out() -> None:
    is_voiced = np.array([True, False, False, True, True, True, False, False, True])

    assert Voice(is_voiced, 3 * WINDOW, 6 * WINDOW).stretches(0, 9 * WINDOW) == [
        (3 * WINDOW, 6 * WINDOW)
    ]


def test_voice_is_found_between_silences() -> None:
    speech = soundfile.read(SPEECH / "librispeech-1995-1837-0001.wav", dtype="float32")[0]
    silence = np.zeros(2 * RATE, np.float32)

    found = find_voices([np.concatenate([silence, speech, silence])])[0]

    assert found is not None
    assert abs(found.start_sample - 2 * RATE) < RATE // 2
    assert abs(found.end_sample - 2 * RATE - len(speech)) < RATE // 2
    assert 0.6 < found.voiced_ms * RATE / 1000 / len(speech) <= 1.1


def test_a_click_is_no_voice() -> None:
    audio = np.zeros(16_000, np.float32)
    audio[8_000:8_020] = 0.9

    assert find_voices([audio, np.zeros(100, np.float32), audio[:0]]) == [None] * 3
