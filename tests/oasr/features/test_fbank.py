"""Features against torchaudio's Kaldi features."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torchaudio.compliance import kaldi

from oasr.features.fbank import Fbank, num_frames

SILENCE = math.log(torch.finfo(torch.float32).eps)
EIGHTY_DB = 80.0 * math.log(10.0) / 10.0


def reference(wave: Tensor) -> Tensor:
    feats: Tensor = kaldi.fbank(
        wave[None] * 32_768.0,
        num_mel_bins=80,
        dither=0.0,
        sample_frequency=16_000.0,
        snip_edges=True,
    )
    return feats


def features(wave: Tensor) -> Tensor:
    feats, counts = Fbank()(wave[None], torch.tensor([wave.numel()]))
    assert counts.tolist() == [feats.shape[1]] == [num_frames(wave.numel())]
    return feats[0]


def assert_matches(wave: Tensor) -> None:
    """1e-4 in every bin within 80 dB of its frame's peak, 1e-2 in the others."""
    ours, theirs = features(wave), reference(wave)
    assert ours.shape == theirs.shape
    audible = theirs >= theirs.max(dim=1, keepdim=True).values - EIGHTY_DB
    error = (ours - theirs).abs()
    assert error[audible].max() < 1e-4
    assert error[~audible].numel() == 0 or error[~audible].max() < 1e-2


def pcm(samples: np.ndarray) -> Tensor:
    return torch.from_numpy(np.round(samples).clip(-32_768, 32_767) / 32_768.0).float()


def tone(hz: float, level: float, seconds: float = 1.0) -> np.ndarray:
    return level * np.sin(2 * np.pi * hz * np.arange(int(16_000 * seconds)) / 16_000)


@pytest.mark.parametrize("level", [1.0, 100.0, 30_000.0])
def test_noise_matches_the_reference(level):
    assert_matches(pcm(np.random.default_rng(0).normal(0.0, level, 16_000)))


@pytest.mark.parametrize("hz", [30.0, 440.0, 3_999.0, 7_990.0])
def test_tones_match_the_reference_in_loud_bins_and_in_quiet_ones(hz):
    assert_matches(pcm(tone(hz, 20_000.0)))


def test_full_scale_square_waves_and_dc_match_the_reference():
    assert_matches(pcm(32_767.0 * np.sign(tone(100.0, 1.0) + 1e-9)))
    assert_matches(pcm(9_000.0 + tone(300.0, 500.0)))


def test_speech_like_bursts_between_digital_silence_match_the_reference():
    rng = np.random.default_rng(1)
    silence = np.zeros(4_000)
    burst = rng.normal(0.0, 3_000.0, 4_000)

    assert_matches(pcm(np.concatenate((silence, burst, silence, burst, silence))))


def test_digital_silence_is_the_logarithm_of_the_smallest_step_of_single_precision():
    feats = features(torch.zeros(1_600))

    torch.testing.assert_close(feats, torch.full((8, 80), SILENCE))
    torch.testing.assert_close(feats, reference(torch.zeros(1_600)))


@pytest.mark.parametrize(
    ("samples", "frames"), [(0, 0), (1, 0), (399, 0), (400, 1), (401, 1), (559, 1), (560, 2)]
)
def test_only_whole_frames_count(samples, frames):
    wave = pcm(np.random.default_rng(2).normal(0.0, 500.0, samples))

    feats = features(wave)

    assert feats.shape == (frames, 80)
    if frames:
        assert_matches(wave)


def test_rows_of_other_lengths_do_not_change_a_row_and_frames_past_its_end_are_zero():
    rng = np.random.default_rng(3)
    lengths = [0, 1, 399, 400, 4_000, 16_123]
    waves = torch.zeros(len(lengths), max(lengths))
    for row, length in enumerate(lengths):
        waves[row] = 9.0  # what lies past the end must not matter
        waves[row, :length] = pcm(rng.normal(0.0, 500.0, length))

    feats, counts = Fbank()(waves, torch.tensor(lengths))

    assert counts.tolist() == [num_frames(length) for length in lengths]
    for row, (length, count) in enumerate(zip(lengths, counts.tolist(), strict=True)):
        assert torch.equal(feats[row, :count], features(waves[row, :length]))
        assert not feats[row, count:].any()
