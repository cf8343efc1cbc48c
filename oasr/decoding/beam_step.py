"""One frame of CTC prefix beam search for many streams at once, in host memory.

Row b of every array is a stream, column k a slot of its beam; slots are in falling order of
score. Every value of a row depends on that row alone, so batch mates change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Packed = NDArray[np.int64]  # floats by their bits

ROOT: Final = -1  # the last token of the empty prefix
_ROOT_HASH: Final = 0x1F83D9AB5BE0CD19
_NO_HASH: Final = 0  # of a slot that holds nothing
_NO_PARENT: Final = 1
_MIX_HASH, _MIX_TOKEN = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64).view(np.int64)


class ContextScores(Protocol):
    """What biasing adds to the score of a prefix; a function of its tokens alone."""

    def extend(self, states: Ints, tokens: Ints) -> tuple[Ints, Floats]:
        """State and gained score, each (K, F), of states (K,) followed by tokens (F,)."""

    def unfinished(self, states: Ints) -> Floats:
        """The part of the gained score that an unfinished phrase was given in advance, (K,)."""


@dataclass(slots=True)
class Beam:
    """Hypotheses of many streams, every field (streams, slots); log probabilities.

    `s` and `ns` sum all alignments that end in blank and in the last token, `v_s` and `v_ns` are
    the best single ones. `prev_*`, `frame_*`, `peak_*` are the emissions along those best ones:
    the node of all tokens but the last, the frame of the last, its log posterior there.
    """

    s: Floats
    ns: Floats
    v_s: Floats
    v_ns: Floats
    last: Ints  # last token, or ROOT
    prefix: Ints  # 64-bit hash of the tokens; _NO_HASH: the slot is empty
    parent: Ints  # that of the tokens without the last
    prev_s: Ints
    prev_ns: Ints
    frame_s: Ints
    frame_ns: Ints
    peak_s: Floats
    peak_ns: Floats
    context_state: Ints
    context: Floats  # score gained from biasing

    @classmethod
    def empty(cls, slots: int) -> Beam:
        """The state of one stream before its first frame: the empty prefix, nothing else."""
        scores = np.full((1, slots), -np.inf)
        scores[0, 0] = 0.0
        never = np.full((1, slots), -np.inf)
        prefix = np.full((1, slots), _NO_HASH)
        prefix[0, 0] = _ROOT_HASH
        zeros = np.zeros((1, slots), np.int64)
        return cls(
            s=scores,
            ns=never,
            v_s=scores,
            v_ns=never,
            last=np.full((1, slots), ROOT),
            prefix=prefix,
            parent=np.where(prefix == _ROOT_HASH, _NO_PARENT, _NO_HASH),
            prev_s=zeros,
            prev_ns=zeros,
            frame_s=zeros,
            frame_ns=zeros,
            peak_s=np.zeros((1, slots)),
            peak_ns=np.zeros((1, slots)),
            context_state=zeros,
            context=np.zeros((1, slots)),
        )

    def pack(self) -> Packed:
        """All fields, (streams, fields, slots), each row in memory of its own once copied."""
        return np.stack([getattr(self, name).view(np.int64) for name in _FIELDS], axis=1)

    @classmethod
    def unpack(cls, packed: Sequence[Packed]) -> Beam:
        """The beams whose rows (fields, slots) were taken from `pack`, one after the other."""
        columns = np.stack(packed, axis=1)
        return cls(
            **{
                name: column.view(np.float64) if name in _FLOAT_FIELDS else column
                for name, column in zip(_FIELDS, columns, strict=True)
            }
        )

    def rows(self, begin: int, end: int) -> Beam:
        """Rows `begin` … `end` − 1, as views."""
        return Beam(*(getattr(self, name)[begin:end] for name in _FIELDS))

    @property
    def score(self) -> Floats:
        """Log probability of each prefix, all alignments summed; without biasing."""
        return np.logaddexp(self.s, self.ns)

    def chosen(self) -> tuple[Ints, Ints, Floats]:
        """prev, frame and peak along each hypothesis' best alignment."""
        in_blank = self.v_s > self.v_ns
        return (
            np.where(in_blank, self.prev_s, self.prev_ns),
            np.where(in_blank, self.frame_s, self.frame_ns),
            np.where(in_blank, self.peak_s, self.peak_ns),
        )


_FIELDS: Final = tuple(field.name for field in fields(Beam))
_FLOAT_FIELDS: Final = frozenset({"s", "ns", "v_s", "v_ns", "peak_s", "peak_ns", "context"})


@dataclass(slots=True)
class _Stays:
    """Each slot's prefix after the frame: scores and emissions, (streams, slots)."""

    s: Floats
    ns: Floats
    v_s: Floats
    v_ns: Floats
    prev_ns: Ints
    frame_ns: Ints
    peak_ns: Floats


@dataclass(slots=True)
class _Extensions:
    """Each slot's prefix and one of the frame's tokens, (streams, slots, tokens)."""

    ns: Floats
    repeats: Flags  # the token is the prefix' last: only alignments in blank go on
    state: Ints | None  # of biasing, where there is any
    gain: Floats | None


@dataclass(frozen=True, slots=True)
class Frame:
    """What a step is given: the best tokens of a frame of each stream."""

    tokens: Ints  # (streams, tokens)
    log_probs: Floats  # (streams, tokens)
    index: Ints  # (streams, 1): absolute frame index
    blank_id: int
    node: int  # id of the first of the 2 · slots emission nodes of this step
    contexts: Mapping[int, ContextScores]  # by row


def advance(beam: Beam, frame: Frame) -> Beam:
    """The beams after one more frame.

    The emission nodes of the step: `node` + k is slot k's `chosen` emissions before the frame,
    `node` + slots + k those of its best alignment in blank.
    """
    repeats = beam.last[:, :, None] == frame.tokens[:, None, :]
    again = np.where(repeats, frame.log_probs[:, None, :], -np.inf).max(axis=2)
    extensions = _extend(beam, frame, repeats)
    stays = _stay(beam, frame, again, extensions)
    gained = beam.context
    stay_scores = np.logaddexp(stays.s, stays.ns)
    ranks = [stay_scores, extensions.ns.reshape(len(gained), -1)]
    if extensions.gain is not None:
        total_gain = gained[:, :, None] + extensions.gain
        ranks = [stay_scores + gained, ranks[1] + total_gain.reshape(len(gained), -1)]
    candidates = np.concatenate(ranks, axis=1)
    # topk is four times faster than numpy's sorts here.
    order: Ints = torch.from_numpy(candidates).topk(gained.shape[1], dim=1).indices.numpy()
    return _survivors(beam, frame, stays, extensions, order)


def _extend(beam: Beam, frame: Frame, repeats: Flags) -> _Extensions:
    before = np.where(repeats, beam.s[:, :, None], beam.score[:, :, None])
    ns = before + frame.log_probs[:, None, :]
    blanks, columns = np.nonzero(frame.tokens == frame.blank_id)
    ns[blanks, :, columns] = -np.inf
    extensions = _Extensions(ns, repeats, None, None)
    if frame.contexts:
        state, gain = np.zeros(ns.shape, np.int64), np.zeros(ns.shape)
        for row, context in frame.contexts.items():
            if row < len(ns):
                state[row], gain[row] = context.extend(beam.context_state[row], frame.tokens[row])
        extensions.state, extensions.gain = state, gain
    return extensions


def _stay(beam: Beam, frame: Frame, again: Floats, extensions: _Extensions) -> _Stays:
    """The prefixes that are in the beam; extensions that lead to one of them move over to it."""
    rows, slots = beam.s.shape
    blank = np.where(frame.tokens == frame.blank_id, frame.log_probs, -np.inf).max(axis=1)
    is_parent = beam.parent[:, :, None] == beam.prefix[:, None, :]
    is_led_to = is_parent.any(axis=2)
    source = is_parent.argmax(axis=2)
    flat = source + np.arange(rows)[:, None] * slots
    repeats = beam.last.take(flat) == beam.last
    led_to = np.where(repeats, beam.s.take(flat), beam.score.take(flat)) + again
    led_to[~is_led_to] = -np.inf
    best = np.maximum(beam.v_s, beam.v_ns)
    v_led_to = np.where(repeats, beam.v_s.take(flat), best.take(flat)) + again
    v_led_to[~is_led_to] = -np.inf
    taken = np.nonzero(extensions.repeats & is_led_to[:, :, None])
    extensions.ns[taken[0], source[taken[0], taken[1]], taken[2]] = -np.inf
    v_held = beam.v_ns + again
    is_new = v_led_to > v_held
    is_peak = is_new | (again > beam.peak_ns)
    return _Stays(
        s=beam.score + blank[:, None],
        ns=np.logaddexp(beam.ns + again, led_to),
        v_s=best + blank[:, None],
        v_ns=np.maximum(v_held, v_led_to),
        prev_ns=np.where(is_new, frame.node + repeats * slots + source, beam.prev_ns),
        frame_ns=np.where(is_peak, frame.index, beam.frame_ns),
        peak_ns=np.where(is_peak, again, beam.peak_ns),
    )


def _survivors(
    beam: Beam, frame: Frame, stays: _Stays, extensions: _Extensions, order: Ints
) -> Beam:
    rows, slots = beam.s.shape
    width = frame.tokens.shape[1]
    grows = order >= slots
    slot, column = np.divmod(np.where(grows, order - slots, order * width), width)
    row = np.arange(rows)[:, None]
    old, new = row * slots + slot, (row * slots + slot) * width + column
    tokens = frame.tokens.take(row * width + column)
    log_probs = frame.log_probs.take(row * width + column)
    repeats = extensions.repeats.take(new)
    best = np.maximum(beam.v_s, beam.v_ns)
    v_ns = np.where(repeats, beam.v_s.take(old), best.take(old)) + log_probs
    prev, emitted, peak = beam.chosen()
    after = Beam(
        s=np.where(grows, -np.inf, stays.s.take(old)),
        ns=np.where(grows, extensions.ns.take(new), stays.ns.take(old)),
        v_s=np.where(grows, -np.inf, stays.v_s.take(old)),
        v_ns=np.where(grows, v_ns, stays.v_ns.take(old)),
        last=np.where(grows, tokens, beam.last.take(old)),
        prefix=np.where(grows, _followed_by(beam.prefix.take(old), tokens), beam.prefix.take(old)),
        parent=np.where(grows, beam.prefix.take(old), beam.parent.take(old)),
        prev_s=prev.take(old),
        prev_ns=np.where(grows, frame.node + repeats * slots + slot, stays.prev_ns.take(old)),
        frame_s=emitted.take(old),
        frame_ns=np.where(grows, frame.index, stays.frame_ns.take(old)),
        peak_s=peak.take(old),
        peak_ns=np.where(grows, log_probs, stays.peak_ns.take(old)),
        context_state=beam.context_state.take(old),
        context=beam.context.take(old),
    )
    if extensions.gain is not None and extensions.state is not None:
        after.context = after.context + np.where(grows, extensions.gain.take(new), 0.0)
        after.context_state = np.where(grows, extensions.state.take(new), after.context_state)
    is_empty = after.score == -np.inf
    after.prefix[is_empty] = _NO_HASH
    after.parent[is_empty] = _NO_HASH
    return after


def _followed_by(prefix: Ints, tokens: Ints) -> Ints:
    mixed: Ints = (prefix ^ (prefix >> 31)) * _MIX_HASH + (tokens + 1) * _MIX_TOKEN
    mixed ^= mixed >> 29
    return mixed
