"""The segmenter on bundled audio: no word outside a segment, no segment without a word."""

import json
from pathlib import Path

import numpy as np
import pytest

from oasr.audio.containers import read_blocks
from tests.support.segments import hear

DATA = Path(__file__).parents[2] / "data"
CALLS = sorted((DATA / "calls").glob("*.wav"))
FRAME_MS = 10


def channels_of(path):
    info, blocks = read_blocks(path)
    frames = np.concatenate(list(blocks))
    return info.sample_rate, [np.ascontiguousarray(column) for column in frames.T]


def audible_part(samples, rate, start_s, end_s):
    """First and last sample of an utterance that stand out from the channel's background.

    The truth gives the placement of an utterance's file, which begins and ends with silence.
    """
    size = rate * FRAME_MS // 1000
    frames = samples[: len(samples) // size * size].reshape(-1, size).astype(float)
    levels = frames.std(axis=1)
    first, last = round(start_s * rate) // size, round(end_s * rate) // size
    audible = np.flatnonzero(levels[first:last] > 3 * np.median(levels))
    return (first + audible[0]) * size, (first + audible[-1] + 1) * size


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
def test_every_utterance_of_a_call_lies_in_exactly_one_segment(path):
    rate, channels = channels_of(path)
    truth = json.loads(path.with_suffix(".json").read_text())["segments"]
    assert len(truth) >= 14

    for number, samples in enumerate(channels):
        segments = hear(samples, rate, sizes=(rate // 10,) * 600).segments
        utterances = [item for item in truth if item["channel"] == number]
        assert len(segments) == len(utterances)
        for (start, cut), item in zip(segments, utterances, strict=True):
            first, last = audible_part(samples, rate, item["start"], item["end"])
            assert start <= first - rate * 100 // 1000
            assert start >= first - rate * 600 // 1000
            assert last + rate * 200 // 1000 <= cut <= last + rate * 900 // 1000


@pytest.mark.parametrize("name", ["voicemail-00.wav", "voicemail-05.flac"])
def test_a_recording_of_four_utterances_has_four_segments(name):
    rate, (samples,) = channels_of(DATA / "recordings" / name)

    heard = hear(samples, rate)

    assert len(heard.segments) == 4


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
def test_less_than_half_of_a_channel_is_decoded(path):
    rate, channels = channels_of(path)

    decoded = sum(
        cut - start for samples in channels for start, cut in hear(samples, rate).segments
    )

    assert decoded < 0.5 * sum(len(samples) for samples in channels)
