"""A beam whose last word has the attention decoder: it keeps the frames that this wants to see."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from oasr.decoding.beam_step import ContextScores
from oasr.decoding.ctc_prefix_beam import Hypothesis, PrefixBeamDecoder
from oasr.decoding.rescoring import TextScorer, rescore

CTC_WEIGHT: Final = 0.5
# 66 s at 40 ms, more than the longest segment of a call. Whoever goes on longer keeps the order of
# the beam: the decoders are trained on utterances, and a stream may have no end.
MOST_FRAMES: Final = 1650


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """The attention decoder of a model; `reverse_weight` is its share of reading backwards."""

    scorer: TextScorer
    reverse_weight: float


class RescoredBeam(PrefixBeamDecoder):
    """Search state of one request whose finals are rescored."""

    def __init__(
        self, blank_id: int, beam: int, context: ContextScores | None, opinion: SecondOpinion
    ) -> None:
        super().__init__(blank_id, beam, beam, context)
        self._opinion = opinion
        self._frames: list[Tensor] = []
        self._frames_seen = 0

    def see(self, encoded: Tensor) -> None:
        """Take encoder frames (T, D), those of the last update; at most MOST_FRAMES are kept."""
        self._frames_seen += len(encoded)
        if self._frames_seen > MOST_FRAMES:
            self._frames.clear()
        else:
            self._frames.append(encoded.clone())  # not a view of what the batch mates said

    @property
    def is_too_long(self) -> bool:
        """Whether the frames are more than the decoder is asked about."""
        return self._frames_seen > MOST_FRAMES

    def ranked(self, real_frames: int) -> list[Hypothesis]:
        """The beam's readings in the order of both models; ArithmeticError if one is no number.

        A reading's score is the decoder's, a weighed one of CTC, and all that hotwords add to it.
        The decoder sees the `real_frames` alone: more silence changes its mind.
        """
        readings = super().ranked(real_frames)
        if self.is_too_long or not self._frames:
            return readings
        rescored = rescore(
            self._opinion.scorer,
            [(reading.tokens, reading.score - reading.boost) for reading in readings],
            torch.cat(self._frames)[:real_frames],
            CTC_WEIGHT,
            self._opinion.reverse_weight,
            [reading.boost for reading in readings],
        )
        if not all(math.isfinite(found.score) for found in rescored):
            raise ArithmeticError("the attention decoder gave no number")
        return [readings[found.place]._replace(score=found.score) for found in rescored]
