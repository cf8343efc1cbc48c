"""Prefix beam search against all alignments, the published algorithm, and itself in chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.ctc_prefix_beam import (
    Hypothesis,
    PrefixBeamDecoder,
    TopTokens,
    advance_all,
    top_tokens,
)
from tests.support.prefix_beam import BLANK, LogProbs, Reading, every_reading, published_search

seeds = st.integers(0, 1 << 30)


def random_log_probs(frames: int, vocabulary: int, seed: int, peaky: float = 2.0) -> LogProbs:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.standard_normal((frames, vocabulary)) * peaky)
    return logits.log_softmax(-1).float().numpy()


def top(log_probs: LogProbs, count: int = 10) -> TopTokens:
    return top_tokens(torch.from_numpy(log_probs), count)


def part(tokens: TopTokens, begin: int, end: int) -> TopTokens:
    return TopTokens(tokens.tokens[begin:end], tokens.log_probs[begin:end])


def search(log_probs: LogProbs, first_beam: int = 10, second_beam: int = 10) -> list[Hypothesis]:
    decoder = PrefixBeamDecoder(BLANK, first_beam, second_beam)
    decoder.update(top(log_probs, first_beam), 0)
    return decoder.hypotheses(second_beam)


def assert_same(found: list[Hypothesis], expected: list[Reading]) -> None:
    assert [h.tokens for h in found] == [r.tokens for r in expected]
    assert [h.token_frames for h in found] == [r.frames for r in expected]
    assert [h.score for h in found] == pytest.approx([r.score for r in expected], abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(2, 4), seeds)
def test_without_pruning_every_reading_has_the_probability_of_all_its_alignments(
    frames, vocabulary, seed
):
    log_probs = random_log_probs(frames, vocabulary, seed)

    found = search(log_probs, vocabulary, second_beam=vocabulary**frames + 1)

    assert_same(found, every_reading(log_probs))


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 30), st.integers(2, 40), st.integers(1, 10), st.integers(1, 10), seeds)
def test_the_pruned_search_is_the_published_one(frames, vocabulary, first, second, seed):
    log_probs = random_log_probs(frames, vocabulary, seed, peaky=3.0)

    assert_same(search(log_probs, first, second), published_search(log_probs, first, second))


def test_long_repetitive_audio_is_searched_as_published():
    log_probs = random_log_probs(400, 4, seed=7)  # prefixes leave the beam and come back

    assert_same(search(log_probs), published_search(log_probs, 10, 10))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.lists(st.integers(0, 9), max_size=12), seeds)
def test_the_result_is_the_same_to_the_bit_wherever_chunks_end(frames, sizes, seed):
    tokens = top(random_log_probs(frames, 9, seed))
    whole = PrefixBeamDecoder(BLANK)
    whole.update(tokens, 1000)
    pieces = PrefixBeamDecoder(BLANK)

    begin = 0
    for size in [*sizes, frames]:
        end = min(frames, begin + size)
        pieces.update(part(tokens, begin, end), 1000 + begin)
        begin = end

    assert pieces.hypotheses(10) == whole.hypotheses(10)


def test_one_frame_at_a_time_is_the_whole_utterance():
    tokens = top(random_log_probs(60, 30, seed=3))
    whole, single = PrefixBeamDecoder(BLANK), PrefixBeamDecoder(BLANK)
    whole.update(tokens, 0)

    for frame in range(60):
        single.update(part(tokens, frame, frame + 1), frame)

    assert single.hypotheses(10) == whole.hypotheses(10)
    assert single.tokens


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 500)), min_size=1, max_size=9), seeds)
def test_streams_of_any_lengths_and_offsets_share_a_call_and_nothing_else(streams, seed):
    tokens = [top(random_log_probs(n, 12, seed + i)) for i, (n, _) in enumerate(streams)]
    offsets = [offset for _, offset in streams]
    alone = [PrefixBeamDecoder(BLANK) for _ in streams]
    changed = [d.update(t, o) for d, t, o in zip(alone, tokens, offsets, strict=True)]
    together = [PrefixBeamDecoder(BLANK) for _ in streams]

    assert advance_all(together, tokens, offsets) == changed

    assert [d.hypotheses(10) for d in together] == [d.hypotheses(10) for d in alone]


def test_an_update_says_whether_the_best_reading_changed():
    sure = np.full((3, 3), -20.0, np.float32)
    sure[[0, 1, 2], [0, 2, 0]] = -1e-6
    tokens = top(sure)
    decoder = PrefixBeamDecoder(BLANK)

    changed = [decoder.update(part(tokens, t, t + 1), t) for t in range(3)]

    assert changed == [False, True, False]
    assert (list(decoder.tokens), list(decoder.token_frames)) == ([2], [1])
    assert list(decoder.scores) == pytest.approx([-1e-6])


def test_a_token_that_follows_itself_in_the_next_chunk_is_one_token_at_its_later_peak():
    log_probs = np.log(np.array([[0.1, 0.9], [0.05, 0.95], [0.9, 0.1], [0.2, 0.8]], np.float32))
    tokens = top(log_probs)
    decoder = PrefixBeamDecoder(BLANK)

    decoder.update(part(tokens, 0, 1), 64)
    decoder.update(part(tokens, 1, 4), 65)

    assert (list(decoder.tokens), list(decoder.token_frames)) == ([1, 1], [65, 67])


def test_tokens_that_are_impossible_leave_no_readings():
    log_probs = np.full((4, 6), -np.inf, np.float32)
    log_probs[:, 3] = 0.0

    assert [(h.tokens, h.score) for h in search(log_probs)] == [((3,), 0.0)]


def test_the_top_tokens_of_a_batch_are_those_of_a_sort():
    log_probs = torch.randn(3, 5, 23, generator=torch.Generator().manual_seed(0)).log_softmax(-1)

    found = top_tokens(log_probs, 4)

    assert (found.tokens.dtype, found.log_probs.dtype) == (np.int32, np.float32)
    order = log_probs.argsort(-1, descending=True)[..., :4]
    np.testing.assert_array_equal(found.tokens, order.numpy())
    np.testing.assert_array_equal(found.log_probs, log_probs.gather(-1, order).numpy())
    assert top_tokens(log_probs, 50).tokens.shape == (3, 5, 23)
