"""Attention rescoring: the readings of a CTC search in the order of a second opinion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class TextScorer(Protocol):
    """An attention decoder, as `rescore` uses it."""

    @property
    def bidirectional(self) -> bool:
        """True if it can read backwards too."""

    def log_probs(
        self, hypotheses: Sequence[Sequence[int]], encoded: Tensor, backwards: bool = False
    ) -> Tensor:
        """(N, longest + 1) float64: of each token in reading order, then of the end, then zeros."""


class Rescored(NamedTuple):
    """One reading with the scores of both models, natural logarithms."""

    place: int  # among the readings given
    score: float  # by which readings are put in order
    attention_score: float  # of the decoder alone, the end included
    token_scores: tuple[float, ...]  # of the decoder, per token; both directions weighed


def rescore(
    scorer: TextScorer,
    nbest: Sequence[tuple[Sequence[int], float]],
    encoded: Tensor,
    ctc_weight: float,
    reverse_weight: float,
    boosts: Sequence[float] | None = None,
) -> list[Rescored]:
    """The readings `nbest` (tokens, CTC score) of encoder frames (T, D), the best first.

    A reading scores (1 − r) · forwards + r · backwards + ctc_weight · CTC + its boost, each way
    with the end of the text; r is `reverse_weight` where the decoder can read backwards, else 0.
    `boosts` are what biasing adds, no part of the CTC scores; without any they are 0. Equals stay
    in the order given. Without frames, which no decoder can read, CTC and boosts alone decide.
    """
    if not 0.0 <= reverse_weight <= 1.0:
        raise ValueError(f"reverse_weight must be in [0, 1], not {reverse_weight}")
    texts = [tokens for tokens, _ in nbest]
    if not nbest:
        return []
    gains = [0.0] * len(nbest) if boosts is None else boosts
    first_pass = [ctc_weight * ctc + gain for (_, ctc), gain in zip(nbest, gains, strict=True)]
    if encoded.shape[0] == 0:
        found = [Rescored(index, score, 0.0, ()) for index, score in enumerate(first_pass)]
    else:
        rows = _weighed(scorer, texts, encoded, reverse_weight)
        found = [
            Rescored(index, sum(row) + score, sum(row), tuple(row[:-1]))
            for index, (row, score) in enumerate(zip(rows, first_pass, strict=True))
        ]
    return sorted(found, key=lambda reading: -reading.score)


def _weighed(
    scorer: TextScorer, texts: Sequence[Sequence[int]], encoded: Tensor, reverse_weight: float
) -> list[list[float]]:
    """Per text the score of each token and of the end, both directions weighed."""
    scores = scorer.log_probs(texts, encoded)
    if reverse_weight > 0.0 and scorer.bidirectional:
        backwards = scorer.log_probs(texts, encoded, backwards=True)
        scores = (1.0 - reverse_weight) * scores + reverse_weight * backwards
    return [row[: len(tokens) + 1] for row, tokens in zip(scores.tolist(), texts, strict=True)]
