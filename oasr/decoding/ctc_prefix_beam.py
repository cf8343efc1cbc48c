"""CTC prefix beam search whose state goes from chunk to chunk.

The published search of WeNet: a prefix keeps the summed probability of its alignments that end in
blank (`s`) and in its last token (`ns`), and the best single alignment of each (`v_s`, `v_ns`),
which says when the tokens were emitted. A frame considers its `first_beam` best tokens; the
`second_beam` best prefixes survive it. A token's frame is the one where its posterior peaks
within its run, as in greedy search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oasr.decoding.beam_step import ROOT, Beam, ContextScores, Frame, advance

DEFAULT_BEAM: Final = 10


class TopTokens(NamedTuple):
    """The best tokens of each frame and their log posteriors, each (T, F), best first."""

    tokens: NDArray[np.int32]
    log_probs: NDArray[np.float32]


class Hypothesis(NamedTuple):
    """One reading; `score` is its log probability over all alignments, biasing included."""

    tokens: tuple[int, ...]
    token_frames: tuple[int, ...]  # of the best alignment
    scores: tuple[float, ...]  # log posterior of each token at its frame
    score: float


class _Emission(NamedTuple):
    """A token as it was emitted, and all before it."""

    before: _Emission | None
    token: int
    frame: int
    log_prob: float


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
        self.beam = Beam.empty(second_beam)
        # All but the last emission, for `beam.prev_s` and then for `beam.prev_ns`.
        self.emissions: list[_Emission | None] = [None] * (2 * second_beam)
        self.best = Hypothesis((), (), (), 0.0)

    def update(self, top: TopTokens, first_frame: int) -> bool:
        """Advance over frames `first_frame` … of `top`; True if the best reading changed."""
        return advance_all([self], [top], [first_frame])[0]

    def settle(self, beam: Beam, emissions: list[_Emission | None]) -> None:
        """Take over what a search found."""
        self.beam, self.emissions = beam, emissions
        self.best = self.hypotheses(1)[0]

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
        beam = self.beam
        totals = beam.score[0] + beam.context[0]
        order = [k for k in np.argsort(-totals, kind="stable").tolist() if totals[k] > -np.inf]
        return [self._hypothesis(k, float(totals[k])) for k in order[:most]]

    def _hypothesis(self, slot: int, score: float) -> Hypothesis:
        prev, frame, log_prob = (float(values[0, slot]) for values in self.beam.chosen())
        last = int(self.beam.last[0, slot])
        if last == ROOT:
            return Hypothesis((), (), (), score)
        emission: _Emission | None = _Emission(
            self.emissions[int(prev)], last, int(frame), log_prob
        )
        path: list[_Emission] = []
        while emission is not None:
            path.append(emission)
            emission = emission.before
        path.reverse()
        return Hypothesis(
            tuple(e.token for e in path),
            tuple(e.frame for e in path),
            tuple(e.log_prob for e in path),
            score,
        )


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
    before = [decoder.best.tokens for decoder in decoders]
    search = _Search(searched, [tops[row] for row in longest_first])
    search.run([first_frames[row] for row in longest_first])
    search.store()
    return [d.best.tokens != tokens for d, tokens in zip(decoders, before, strict=True)]


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
        # Emissions made in this call, by frame, row and (chosen, in blank) · slot.
        nodes = (self._lengths[0], len(tops), 2 * self._slots)
        self._node_prev = np.zeros(nodes, np.int64)
        self._node_token = np.zeros(nodes, np.int64)
        self._node_frame = np.zeros(nodes, np.int64)
        self._node_log_prob = np.zeros(nodes)
        self._beams: list[Beam] = []  # of the decoders, shortest first

    def run(self, first_frames: Sequence[int]) -> None:
        """Find the beams after the last frame of each row."""
        contexts = {row: d.context for row, d in enumerate(self._decoders) if d.context is not None}
        blank_id = self._decoders[0].blank_id
        beam = Beam.stack([decoder.beam for decoder in self._decoders])
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

    def store(self) -> None:
        """Hand every decoder its beam and the emissions that it still needs."""
        beams = [beam.copy() for beam in reversed(self._beams)]
        emissions = [
            self._resolve(row, [*beam.prev_s[0].tolist(), *beam.prev_ns[0].tolist()])
            for row, beam in enumerate(beams)
        ]
        for decoder, beam, emitted in zip(self._decoders, beams, emissions, strict=True):
            beam.prev_s[:] = np.arange(self._slots)
            beam.prev_ns[:] = np.arange(self._slots, 2 * self._slots)
            decoder.settle(beam, emitted)

    def _drop_ended(self, beam: Beam, index: int) -> Beam:
        rows = len(beam.s)
        while rows and self._lengths[rows - 1] == index:
            rows -= 1
            self._beams.append(beam.rows(rows, rows + 1))
        return beam if rows == len(beam.s) else beam.rows(0, rows)

    def _record_emissions(self, beam: Beam, index: int) -> None:
        rows, slots = beam.s.shape
        prev, frame, log_prob = beam.chosen()
        for nodes, chosen, in_blank in (
            (self._node_prev, prev, beam.prev_s),
            (self._node_token, beam.last, beam.last),
            (self._node_frame, frame, beam.frame_s),
            (self._node_log_prob, log_prob, beam.peak_s),
        ):
            nodes[index, :rows, :slots] = chosen
            nodes[index, :rows, slots:] = in_blank

    def _resolve(self, row: int, ids: Sequence[int]) -> list[_Emission | None]:
        """The emissions that node `ids` of a row stand for."""
        found = dict(enumerate(self._decoders[row].emissions))
        for node in ids:
            pending = []
            while node not in found:
                pending.append(node)
                node = int(self._node_prev[self._place(row, node)])
            for known in reversed(pending):
                found[known] = self._emission(row, known, found[node])
                node = known
        return [found[node] for node in ids]

    def _emission(self, row: int, node: int, before: _Emission | None) -> _Emission | None:
        place = self._place(row, node)
        token = int(self._node_token[place])
        if token == ROOT:
            return None
        log_prob = float(self._node_log_prob[place])
        return _Emission(before, token, int(self._node_frame[place]), log_prob)

    def _place(self, row: int, node: int) -> tuple[int, int, int]:
        index, column = divmod(node - 2 * self._slots, 2 * self._slots)
        return index, row, column
