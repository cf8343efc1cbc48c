from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oasr.decoding.ctc_greedy import best_path
from oasr.decoding.near_ties import NEAR_TIE, is_near_tie, near_tie_frames


def naive(log_probs: Tensor) -> list[list[bool]]:
    """Sorts every frame."""
    found = []
    for utterance in log_probs.tolist():
        frames = [sorted(frame, reverse=True) for frame in utterance]
        found.append([frame[0] - frame[1] < NEAR_TIE for frame in frames])
    return found


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 40]), st.floats(1e-4, 8))
def test_the_frames_are_those_that_sorting_finds(seed: int, tokens: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    log_probs = (spread * torch.randn(2, 6, tokens, generator=generator)).log_softmax(-1)

    found = near_tie_frames(log_probs, best_path(log_probs)[1])

    assert found.tolist() == naive(log_probs)


def test_two_tokens_with_half_of_the_probability_each_are_a_near_tie() -> None:
    log_probs = torch.tensor([[[0.5, 0.5, 1e-9], [0.5 + 4e-4, 0.5 - 4e-4, 1e-9]]]).log()

    assert near_tie_frames(log_probs, best_path(log_probs)[1]).tolist() == [[True, False]]


def test_frames_that_are_no_number_are_not_counted() -> None:
    log_probs = torch.full((1, 2, 5), torch.nan)

    assert not near_tie_frames(log_probs, best_path(log_probs)[1]).any()
    assert np.isnan(best_path(log_probs)[1]).all()


def test_readings_are_compared_by_the_best_two() -> None:
    assert is_near_tie([-3.0, -3.0005])
    assert not is_near_tie([-3.0, -3.002])
    assert not is_near_tie([-3.0])
