"""The order of readings, from scores worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oasr.decoding.rescoring import rescore

FRAMES = torch.zeros(3, 2)


class SpelledScorer:
    """Forwards, token t behind token p scores −|t − p| and the end −1; backwards twice that."""

    def __init__(self, bidirectional: bool = True) -> None:
        self.bidirectional = bidirectional
        self.calls: list[bool] = []

    def log_probs(
        self, hypotheses: Sequence[Sequence[int]], encoded: Tensor, backwards: bool = False
    ) -> Tensor:
        assert len(encoded)
        assert not (backwards and not self.bidirectional)
        self.calls.append(backwards)
        width = max(len(tokens) for tokens in hypotheses) + 1
        rows = torch.zeros(len(hypotheses), width, dtype=torch.float64)
        for row, tokens in enumerate(hypotheses):
            for column, value in enumerate(spelled(tokens, backwards)):
                rows[row, column] = value
        return rows


def spelled(tokens: Sequence[int], backwards: bool) -> list[float]:
    if not backwards:
        steps = zip(tokens, [0, *tokens], strict=False)
        return [*(-float(abs(token - before)) for token, before in steps), -1.0]
    steps = zip(tokens, [*tokens[1:], 0], strict=False)
    return [*(-2.0 * abs(token - behind) for token, behind in steps), -2.0]


def test_a_reading_scores_both_directions_with_their_ends_and_the_weighed_ctc():
    nbest = [((1, 3), -4.0), ((2,), -5.0)]

    best, second = rescore(SpelledScorer(), nbest, FRAMES, ctc_weight=0.5, reverse_weight=0.3)

    # (2,): forwards −2 − 1, backwards −4 − 2; (1, 3): −1 − 2 − 1 and −4 − 6 − 2
    assert best.place == 1
    assert best.attention_score == pytest.approx(0.7 * -3 + 0.3 * -6)
    assert best.score == pytest.approx(0.7 * -3 + 0.3 * -6 + 0.5 * -5)
    assert second.place == 0
    assert second.score == pytest.approx(0.7 * -4 + 0.3 * -12 + 0.5 * -4)
    assert second.token_scores == pytest.approx((0.7 * -1 + 0.3 * -4, 0.7 * -2 + 0.3 * -6))


def test_the_weight_of_ctc_can_turn_the_order():
    nbest = [((1, 3), -4.0), ((2,), -8.0)]

    order = [
        rescore(SpelledScorer(), nbest, FRAMES, ctc_weight, 0.3)[0].place
        for ctc_weight in (0.0, 0.5, 2.0)
    ]

    assert order == [1, 1, 0]


@pytest.mark.parametrize(
    ("bidirectional", "reverse_weight"), [(False, 0.3), (True, 0.0)], ids=["cannot", "need not"]
)
def test_a_decoder_that_need_not_read_backwards_is_not_asked_to(bidirectional, reverse_weight):
    scorer = SpelledScorer(bidirectional)

    (only,) = rescore(scorer, [((2,), -5.0)], FRAMES, 0.5, reverse_weight)

    assert scorer.calls == [False]
    assert only.score == pytest.approx(-3 - 2.5)


def test_the_empty_reading_is_scored_by_its_end():
    (only,) = rescore(SpelledScorer(), [((), -1.5)], FRAMES, 1.0, 0.5)

    assert only.score == pytest.approx(0.5 * -1 + 0.5 * -2 - 1.5)
    assert only.token_scores == ()


def test_without_frames_ctc_alone_decides():
    scorer = SpelledScorer()

    readings = rescore(scorer, [((), -1.0), ((2,), -0.5)], torch.zeros(0, 2), 0.5, 0.3)

    assert [(r.place, r.score) for r in readings] == [(1, -0.25), (0, -0.5)]
    assert scorer.calls == []


def test_no_readings_stay_none():
    assert rescore(SpelledScorer(), [], FRAMES, 0.5, 0.3) == []


def test_equals_stay_in_the_order_given():
    nbest = [((2,), -5.0), ((1,), -1.0), ((2,), -5.0)]

    assert [r.place for r in rescore(SpelledScorer(), nbest, FRAMES, 0.5, 0.3)] == [1, 0, 2]


@pytest.mark.parametrize("reverse_weight", [-0.1, 1.1, math.nan])
def test_a_reverse_weight_that_is_no_share_is_refused(reverse_weight):
    with pytest.raises(ValueError, match="reverse_weight"):
        rescore(SpelledScorer(), [((2,), -5.0)], FRAMES, 0.5, reverse_weight)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 9), max_size=6), st.floats(-50, 0)),
        min_size=1,
        max_size=8,
    ),
    st.floats(0, 2),
    st.floats(0, 1),
)
def test_every_reading_comes_back_once_and_in_falling_order(nbest, ctc_weight, reverse_weight):
    readings = rescore(SpelledScorer(), nbest, FRAMES, ctc_weight, reverse_weight)

    assert sorted(r.place for r in readings) == list(range(len(nbest)))
    assert [r.score for r in readings] == sorted((r.score for r in readings), reverse=True)
    for reading in readings:
        tokens, ctc = nbest[reading.place]
        forwards, backwards = sum(spelled(tokens, False)), sum(spelled(tokens, True))
        attention = (1 - reverse_weight) * forwards + reverse_weight * backwards
        assert reading.attention_score == pytest.approx(attention)
        assert reading.score == pytest.approx(attention + ctc_weight * ctc)
