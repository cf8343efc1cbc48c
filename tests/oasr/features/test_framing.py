"""Streaming framing: the same features, bit for bit, however the samples come in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.features.fbank import Fbank, num_frames
from oasr.features.framing import FrameBuffer, span_samples

WAVE = np.random.default_rng(0).normal(0.0, 0.1, 20_000).astype(np.float32)


def features(samples: np.ndarray) -> torch.Tensor:
    wave = torch.from_numpy(samples)[None]
    return Fbank()(wave, torch.tensor([samples.size]))[0][0]


OFFLINE = features(WAVE)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=30))
def test_every_split_gives_the_offline_features(sizes):
    buffer, blocks, fed = FrameBuffer(), [], 0
    for size in sizes:
        buffer.push(WAVE[fed : fed + size])
        fed = min(fed + size, WAVE.size)
        if buffer.frames:
            blocks.append(features(buffer.take(buffer.frames)))

    streamed = torch.cat(blocks) if blocks else torch.zeros(0, 80)

    assert buffer.first_frame == num_frames(fed)
    assert torch.equal(streamed, OFFLINE[: num_frames(fed)])


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 16), st.integers(1, 4_000))
def test_decoding_windows_that_overlap_give_the_offline_features(chunk, size):
    window, hop = (chunk - 1) * 4 + 7, 4 * chunk
    buffer = FrameBuffer()
    for first in range(0, WAVE.size, size):
        buffer.push(WAVE[first : first + size])
        while buffer.frames >= window:
            start = buffer.first_frame
            samples = buffer.take(window, advance=hop) if window > hop else buffer.take(window)
            assert torch.equal(features(samples), OFFLINE[start : start + window])
            assert buffer.first_frame == start + hop

    assert buffer.frames < window
    assert buffer.first_frame == max((num_frames(WAVE.size) - window) // hop + 1, 0) * hop


def test_what_is_not_a_whole_frame_stays_for_the_next_one():
    buffer = FrameBuffer()
    buffer.push(WAVE[:399])
    assert buffer.frames == 0

    buffer.push(WAVE[399:401])

    assert buffer.frames == 1
    np.testing.assert_array_equal(buffer.take(1), WAVE[:400])
    assert buffer.buffered_samples == 401 - 160


def test_frames_cover_their_samples():
    assert [span_samples(frames) for frames in (0, 1, 2, 67)] == [0, 400, 560, 10_960]
    assert all(num_frames(span_samples(frames)) == frames for frames in range(100))


@pytest.mark.parametrize(("frames", "advance"), [(0, None), (4, None), (3, 0), (3, 4), (-1, 1)])
def test_frames_that_are_not_there_are_refused(frames, advance):
    buffer = FrameBuffer()
    buffer.push(WAVE[: span_samples(3)])

    with pytest.raises(ValueError, match="from 3 frames"):
        buffer.take(frames, advance)
    assert buffer.frames == 3


def test_an_empty_piece_changes_nothing():
    buffer = FrameBuffer()
    buffer.push(WAVE[:0])

    assert (buffer.frames, buffer.buffered_samples, buffer.first_frame) == (0, 0, 0)
