"""Greedy CTC search against a brute-force collapse, whole and in chunks."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.ctc_greedy import GreedyDecoder, best_path

BLANK = 0


def brute_force(ids: list[int], scores: list[float]) -> tuple[list[int], list[int], list[float]]:
    """Runs of equal ids, blanks dropped; the first of the highest scores of a run."""
    tokens, frames, best = [], [], []
    for token, run in groupby(range(len(ids)), key=ids.__getitem__):
        if token != BLANK:
            peak = max(run, key=scores.__getitem__)
            tokens.append(token)
            frames.append(peak)
            best.append(scores[peak])
    return tokens, frames, best


path = st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 0)), max_size=40)


@settings(deadline=None, max_examples=200)
@given(path, st.lists(st.integers(1, 7), min_size=40, max_size=40))
def test_the_result_is_the_brute_force_collapse_wherever_chunks_end(frames, sizes):
    ids = np.array([token for token, _ in frames], dtype=np.int32)
    scores = np.array([score / 4 for _, score in frames], dtype=np.float32)
    decoder, first = GreedyDecoder(BLANK), 0
    for size in sizes:
        tokens_before = len(decoder.tokens)
        grew = decoder.update(ids[first : first + size], scores[first : first + size], first)
        assert grew == (len(decoder.tokens) > tokens_before)
        first += size

    found = (decoder.tokens, decoder.token_frames, decoder.scores)

    assert found == brute_force(ids.tolist(), scores.tolist())


def test_a_run_that_goes_on_in_the_next_chunk_moves_to_its_later_peak():
    decoder = GreedyDecoder(BLANK)
    assert decoder.update(np.array([0, 7], np.int32), np.array([-0.1, -0.9], np.float32), 16)

    assert not decoder.update(np.array([7, 0], np.int32), np.array([-0.25, -0.1], np.float32), 18)

    assert (decoder.tokens, decoder.token_frames, decoder.scores) == ([7], [18], [-0.25])


def test_the_same_token_after_a_blank_at_a_chunk_edge_is_a_new_token():
    decoder = GreedyDecoder(BLANK)
    decoder.update(np.array([7, 0], np.int32), np.zeros(2, np.float32), 0)

    assert decoder.update(np.array([7], np.int32), np.zeros(1, np.float32), 2)

    assert decoder.tokens == [7, 7]


def test_the_best_path_of_a_batch_is_the_argmax_and_its_log_posterior():
    log_probs = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0)).log_softmax(-1)

    ids, scores = best_path(log_probs)

    assert (ids.dtype, scores.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(ids, log_probs.argmax(-1).numpy())
    np.testing.assert_array_equal(scores, log_probs.amax(-1).numpy())
