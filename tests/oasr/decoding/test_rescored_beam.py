"""A rescored beam against all readings of a few frames, scored by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oasr.decoding.ctc_prefix_beam import TopTokens, top_tokens
from oasr.decoding.hotwords import HotwordContext
from oasr.decoding.options import Hotword
from oasr.decoding.rescored_beam import MOST_FRAMES, RescoredBeam, SecondOpinion
from oasr.decoding.tokenizer import Tokenizer
from tests.support.prefix_beam import BLANK, every_reading

TOKENIZER = Tokenizer(["<blank>", "▁a", "▁b", "▁c"])
ALL = 300  # more than the readings of four frames
PHRASES = (Hotword("a", 1.25), Hotword("c b", 0.5))


class LastFrameScorer:
    """Scores each token and the end by what the last frame says; backwards half of it."""

    bidirectional = True

    def log_probs(
        self, hypotheses: Sequence[Sequence[int]], encoded: Tensor, backwards: bool = False
    ) -> Tensor:
        width = max(map(len, hypotheses)) + 1
        rows = torch.zeros(len(hypotheses), width, dtype=torch.float64)
        share = 0.5 if backwards else 1.0
        for row, tokens in enumerate(hypotheses):
            for column, token in enumerate((*tokens, BLANK)):
                rows[row, column] = share * encoded[-1, token].double()
        return rows


def attention_score(tokens: Sequence[int], encoded: Tensor) -> float:
    """Of both directions, with a reverse weight of 0.3."""
    return (0.7 + 0.3 * 0.5) * sum(float(encoded[-1, token]) for token in (*tokens, BLANK))


def heard(seed: int, frames: int) -> tuple[TopTokens, np.ndarray, Tensor]:
    """Posteriors of some frames and what the encoder is taken to have said."""
    rng = np.random.default_rng(seed)
    log_probs = torch.from_numpy(rng.standard_normal((frames, 4)) * 2).log_softmax(-1).float()
    encoded = torch.from_numpy(rng.standard_normal((frames, 4)))
    return top_tokens(log_probs, 4), log_probs.numpy(), encoded


def boost(text: str) -> float:
    """What the phrases of PHRASES add to a text."""
    words = text.split()
    pairs = list(pairwise(words))
    return 1.25 * words.count("a") + 2 * 0.5 * pairs.count(("c", "b"))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_reading_scores_the_decoder_and_half_of_ctc_and_its_hotwords_once(
    seed: int, frames: int, chunk: int, biased: bool
) -> None:
    top, log_probs, encoded = heard(seed, frames)
    context = HotwordContext(PHRASES, TOKENIZER) if biased else None
    beam = RescoredBeam(BLANK, ALL, context, SecondOpinion(LastFrameScorer(), 0.3))
    for first in range(0, frames, chunk):
        part = slice(first, first + chunk)
        beam.update(TopTokens(top.tokens[part], top.log_probs[part]), first)
        beam.see(encoded[part])

    found = beam.ranked(frames)

    expected = {
        reading.tokens: attention_score(reading.tokens, encoded)
        + 0.5 * reading.score
        + (boost(TOKENIZER.decode(reading.tokens)) if biased else 0.0)
        for reading in every_reading(log_probs)
    }
    assert {reading.tokens: reading.score for reading in found} == pytest.approx(expected, abs=1e-6)
    assert [r.score for r in found] == sorted((r.score for r in found), reverse=True)


def test_the_frames_of_an_utterance_that_is_too_long_are_let_go() -> None:
    top, _, encoded = heard(1, 4)
    beam = RescoredBeam(BLANK, ALL, None, SecondOpinion(LastFrameScorer(), 0.3))
    beam.update(top, 0)
    beam.see(encoded)
    assert beam.ranked(4) != beam.hypotheses(ALL)

    beam.see(torch.zeros(MOST_FRAMES - 4, 4))
    assert not beam.is_too_long
    beam.see(torch.zeros(1, 4))

    assert beam.is_too_long
    assert beam.ranked(4) == beam.hypotheses(ALL)


def test_the_decoder_does_not_see_the_silence_behind_the_audio() -> None:
    top, _, encoded = heard(4, 4)
    beam = RescoredBeam(BLANK, ALL, None, SecondOpinion(LastFrameScorer(), 0.3))
    beam.update(top, 0)
    beam.see(encoded)

    scores = {reading.tokens: reading.score for reading in beam.ranked(2)}

    (empty,) = (h.score for h in beam.hypotheses(ALL) if not h.tokens)
    assert scores[()] == pytest.approx(0.85 * float(encoded[1, BLANK]) + 0.5 * empty)


def test_frames_are_kept_apart_from_the_batch_that_they_came_with() -> None:
    top, _, encoded = heard(2, 4)
    batch = torch.stack([encoded, encoded])
    beam = RescoredBeam(BLANK, ALL, None, SecondOpinion(LastFrameScorer(), 0.3))
    beam.update(top, 0)
    beam.see(batch[0])
    before = beam.ranked(4)

    batch.zero_()

    assert beam.ranked(4) == before


def test_an_opinion_that_is_no_number_is_an_error() -> None:
    top, _, encoded = heard(3, 4)
    beam = RescoredBeam(BLANK, ALL, None, SecondOpinion(LastFrameScorer(), 0.3))
    beam.update(top, 0)
    beam.see(encoded * float("nan"))

    with pytest.raises(ArithmeticError):
        beam.ranked(4)
