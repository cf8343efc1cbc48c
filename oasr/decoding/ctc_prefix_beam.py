"""CTC prefix beam search whose state goes from chunk to chunk.

The published search of WeNet: a prefix keeps the summed probability of its alignments that end in
blank (`s`) and in its last token (`ns`), and the best single alignment of each (`v_s`, `v_ns`),
which says when the tokens were emitted. A frame considers its `first_beam` best tokens; the
`second_beam` best prefixes survive it. A token's frame is the one where its posterior peaks
within its run, as in greedy search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oasr.decoding.beam_step import ROOT, Beam, ContextScores, Floats, Frame, Ints, Packed, advance

DEFAULT_BEAM: Final = 10

# An emitted token: all before it (None: nothing), the token, its frame, its log posterior there.
_Emission: TypeAlias = "tuple[_Emission | None, int, int, float]"


class TopTokens(NamedTuple):
    """The best tokens of each frame and their log posteriors, each (T, F), best first."""

    tokens: NDArray[np.int32]
    log_probs: NDArray[np.float32]


class Hypothesis(NamedTuple):
    """One reading; `score` is its log probability over all alignments, biasing included.

    Of a rescored reading it is that of both models.
    """

    tokens: tuple[int, ...]
    token_frames: tuple[int, ...]  # of the best alignment
    scores: tuple[float, ...]  # log posterior of each token at its frame
    score: float
    boost: float = 0.0  # the part of `score` that biasing added


class PrefixBeamDecoder:
    """Search state of one stream."""

    def __init__(
        self,
        blank_id: int,
        first_beam: int = DEFAULT_BEAM,
        second_beam: int = DEFAULT_BEAM,
        context: ContextScores | None = None,
    ) -> None:
        """`first_beam` tokens of a frame are tried, `second_beam` prefixes are kept."""
        self.blank_id = blank_id
        self.first_beam = first_beam
        self.second_beam = second_beam
        self.context = context
        self.beam: Packed = Beam.empty(second_beam).pack()[0]
        # All but the last emission, for `beam.prev_s` and then for `beam.prev_ns`.
        self.emissions: list[_Emission | None] = [None] * (2 * second_beam)
        self._best: Hypothesis | None = None  # once asked for
        self._best_prefix = Beam.unpack([self.beam]).prefix.item(0)

    def update(self, top: TopTokens, first_frame: int) -> bool:
        """Advance over frames `first_frame` … of `top`; True if the best reading changed."""
        return advance_all([self], [top], [first_frame])[0]

    def settle(self, beam: Packed, emissions: list[_Emission | None], best_prefix: int) -> bool:
        """Take over what a search found; True if the best reading is another one now."""
        before, self._best_prefix = self._best_prefix, best_prefix
        self.beam, self.emissions, self._best = beam, emissions, None
        return best_prefix != before

    @property
    def best(self) -> Hypothesis:
        """The best reading so far."""
        if self._best is None:
            self._best = self.hypotheses(1)[0]
        return self._best

    @property
    def tokens(self) -> Sequence[int]:
        """Tokens of the best reading."""
        return self.best.tokens

    @property
    def token_frames(self) -> Sequence[int]:
        """The frame of each token of the best reading."""
        return self.best.token_frames

    @property
    def scores(self) -> Sequence[float]:
        """The log posterior of each token of the best reading."""
        return self.best.scores

    def hypotheses(self, most: int) -> list[Hypothesis]:
        """At most `most` readings, the best first."""
        beam = Beam.unpack([self.beam])
        boosts = _boosts(beam, [self.context])[0]
        totals = beam.score[0] + boosts
        order = [k for k in np.argsort(-totals, kind="stable").tolist() if totals[k] > -np.inf]
        return [
            self._hypothesis(beam, k)._replace(score=totals.item(k), boost=boosts.item(k))
            for k in order[:most]
        ]

    def ranked(self, real_frames: int) -> list[Hypothesis]:
        """All readings in the order in which a request is told of them, the best first.

        Of the frames heard the first `real_frames` are of the request's audio, the others of the
        silence behind it.
        """
        del real_frames
        return self.hypotheses(self.second_beam)

    def _hypothesis(self, beam: Beam, slot: int) -> Hypothesis:
        """Without its score."""
        last = beam.last.item(slot)
        if last == ROOT:
            return Hypothesis((), (), (), 0.0)
        if beam.v_s.item(slot) > beam.v_ns.item(slot):
            before, frame, log_prob = self.emissions[slot], beam.frame_s, beam.peak_s
        else:
            before = self.emissions[self.second_beam + slot]
            frame, log_prob = beam.frame_ns, beam.peak_ns
        emission: _Emission | None = (before, last, frame.item(slot), log_prob.item(slot))
        tokens, frames, scores = [], [], []
        while emission is not None:
            emission, token, at, token_score = emission
            tokens.append(token)
            frames.append(at)
            scores.append(token_score)
        return Hypothesis(tuple(tokens[::-1]), tuple(frames[::-1]), tuple(scores[::-1]), 0.0)


def _boosts(beam: Beam, contexts: Sequence[ContextScores | None]) -> Floats:
    """What biasing adds to each slot, without what unfinished phrases were given in advance."""
    boosts = beam.context.copy()
    for row, context in enumerate(contexts):
        if context is not None:
            boosts[row] -= context.unfinished(beam.context_state[row])
    return boosts


def top_tokens(log_probs: Tensor, count: int) -> TopTokens:
    """The `count` best tokens (fewer in a smaller vocabulary) of log_probs (…, T, V).

    One reduction on the device and one transfer for the whole batch.
    """
    values, ids = log_probs.float().topk(min(count, log_probs.shape[-1]), dim=-1)
    packed = torch.stack((ids.int(), values.view(torch.int32))).cpu().numpy()
    return TopTokens(packed[0], packed[1].view(np.float32))


def advance_all(
    decoders: Sequence[PrefixBeamDecoder],
    tops: Sequence[TopTokens],
    first_frames: Sequence[int],
) -> list[bool]:
    """Advance each decoder over its own frames, all in one go; True where the best reading changed.

    Decoders of one call have the same beams, the streams may differ in offset and length. What a
    decoder finds does not depend on the others. Nothing changes if this raises.
    """
    longest_first = sorted(range(len(tops)), key=lambda row: -len(tops[row].tokens))
    searched = [decoders[row] for row in longest_first]
    search = _Search(searched, [tops[row] for row in longest_first])
    search.run([first_frames[row] for row in longest_first])
    changed = dict(zip(longest_first, search.store(), strict=True))
    return [changed[row] for row in range(len(tops))]


class _Search:
    """Decoders in step, the longest first, so that those with a frame left are the first rows."""

    def __init__(self, decoders: Sequence[PrefixBeamDecoder], tops: Sequence[TopTokens]) -> None:
        self._decoders = decoders
        self._slots = decoders[0].second_beam
        self._lengths = [len(top.tokens) for top in tops]
        width = tops[0].tokens.shape[1]
        shape = (self._lengths[0], len(tops), width)
        self._tokens = np.zeros(shape, np.int64)
        self._log_probs = np.zeros(shape)
        for row, top in enumerate(tops):
            self._tokens[: len(top.tokens), row] = top.tokens
            self._log_probs[: len(top.tokens), row] = top.log_probs
        # Emissions of this call by row and by frame · (chosen, in blank) · slot: the emission
        # before, token, frame and log posterior of each.
        nodes = (len(tops), self._lengths[0] * 2 * self._slots)
        self._nodes: tuple[Ints, Ints, Ints, Floats] = (
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes),
        )
        self._ended: list[Packed] = []  # beams after their last frame, shortest first

    def run(self, first_frames: Sequence[int]) -> None:
        """Find the beams after the last frame of each row."""
        contexts = {row: d.context for row, d in enumerate(self._decoders) if d.context is not None}
        blank_id = self._decoders[0].blank_id
        beam = Beam.unpack([decoder.beam for decoder in self._decoders])
        beam.prev_s[:] = np.arange(self._slots)
        beam.prev_ns[:] = np.arange(self._slots, 2 * self._slots)
        first = np.array(first_frames, np.int64)[:, None]
        for index in range(self._lengths[0]):
            beam = self._drop_ended(beam, index)
            rows = len(beam.s)
            self._record_emissions(beam, index)
            frame = Frame(
                self._tokens[index, :rows],
                self._log_probs[index, :rows],
                first[:rows] + index,
                blank_id,
                2 * self._slots * (index + 1),
                contexts,
            )
            beam = advance(beam, frame)
        self._drop_ended(beam, self._lengths[0])

    def store(self) -> list[bool]:
        """Hand every decoder its beam and the emissions it needs; True where its best changed."""
        rows = self._ended[::-1]
        beam = Beam.unpack(rows)
        prev_s = np.where(beam.v_s > -np.inf, beam.prev_s, 0)
        prev_ns = np.where(beam.v_ns > -np.inf, beam.prev_ns, 0)
        emissions = self._resolve(np.concatenate((prev_s, prev_ns), axis=1))
        boosts = _boosts(beam, [decoder.context for decoder in self._decoders])
        best = (beam.score + boosts).argmax(axis=1)
        prefixes = np.take_along_axis(beam.prefix, best[:, None], axis=1)[:, 0].tolist()
        return [
            decoder.settle(row.copy(), emitted, prefix)
            for decoder, row, emitted, prefix in zip(
                self._decoders, rows, emissions, prefixes, strict=True
            )
        ]

    def _drop_ended(self, beam: Beam, index: int) -> Beam:
        rows = len(beam.s)
        while rows and self._lengths[rows - 1] == index:
            rows -= 1
        if rows == len(beam.s):
            return beam
        self._ended.extend(beam.rows(rows, len(beam.s)).pack()[::-1])
        return beam.rows(0, rows)

    def _record_emissions(self, beam: Beam, index: int) -> None:
        rows, slots = beam.s.shape
        prev, frame, log_prob = beam.chosen()
        chosen = (prev, beam.last, frame, log_prob)
        in_blank = (beam.prev_s, beam.last, beam.frame_s, beam.peak_s)
        first = index * 2 * slots
        for nodes, left, right in zip(self._nodes, chosen, in_blank, strict=True):
            nodes[:rows, first : first + slots] = left
            nodes[:rows, first + slots : first + 2 * slots] = right

    def _resolve(self, needed: Ints) -> list[list[_Emission | None]]:
        """The emissions that the `needed` nodes (rows, n) stand for."""
        first = 2 * self._slots  # nodes below it are the decoders' own emissions
        prev = self._nodes[0]
        is_needed = np.zeros(prev.shape, np.bool_)
        rows, columns = np.nonzero(needed >= first)
        nodes = needed[rows, columns] - first
        while len(nodes):
            is_needed[rows, nodes] = True
            nodes = prev[rows, nodes] - first
            rows, nodes = rows[nodes >= 0], nodes[nodes >= 0]
        known = [dict(enumerate(decoder.emissions)) for decoder in self._decoders]
        rows, nodes = np.nonzero(is_needed)  # every node after those before it
        values = (column[rows, nodes].tolist() for column in self._nodes)
        for row, node, before, token, frame, log_prob in zip(
            rows.tolist(), (nodes + first).tolist(), *values, strict=True
        ):
            emission = known[row][before]
            if token != ROOT:
                emission = (emission, token, frame, log_prob)
            known[row][node] = emission
        return [[known[row][node] for node in wanted] for row, wanted in enumerate(needed.tolist())]
