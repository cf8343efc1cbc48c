"""Phrases that a request expects: a beam search prefers readings that contain them.

The phrases form an Aho–Corasick automaton over characters, not tokens, so every way to cut a
phrase into tokens is preferred alike and no encoder is needed. A reading gains a part of the boost
with each character, and gives it back where it turns off before the phrase is a whole word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from oasr.decoding.beam_step import Floats, Ints
from oasr.decoding.options import Hotword
from oasr.decoding.tokenizer import WORD_START, Tokenizer

_ROOT: Final = 0
MOST_MOVES: Final = 200_000  # remembered; some 30 MB


@dataclass(slots=True)
class _Node:
    """A prefix of phrases; scores are natural logarithms."""

    given: float  # gained on the way here
    kept: float  # the part that phrases finished on the way have earned
    children: dict[str, int] = field(default_factory=dict)
    fallback: int = _ROOT  # the longest proper suffix that is a prefix, too
    is_mark: bool = False  # its last character is WORD_START
    is_end: bool = False
    within: float = 0.0  # boosts of phrases that end here and began later


class HotwordContext:
    """Scores of prefixes for one request; see `beam_step.ContextScores`."""

    def __init__(self, hotwords: Sequence[Hotword], tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._nodes = [_Node(0.0, 0.0)]
        self._moves: dict[tuple[int, int], tuple[int, float]] = {}
        spelled = [(_spell(hotword.phrase), _total(hotword)) for hotword in hotwords]
        for spelling, total in spelled:
            self._insert(spelling, total / len(spelling))
        for spelling, total in spelled:
            self._close(spelling, total)
        self._link()

    def extend(self, states: Ints, tokens: Ints) -> tuple[Ints, Floats]:
        """State and gained score, each (K, F), of states (K,) followed by tokens (F,)."""
        ids = tokens.tolist()
        moves = [[self._move(state, token) for token in ids] for state in states.tolist()]
        return (
            np.array([[state for state, _ in row] for row in moves], np.int64),
            np.array([[gain for _, gain in row] for row in moves], np.float64),
        )

    def unfinished(self, states: Ints) -> Floats:
        """What readings in `states` (K,) have to give back if they end there."""
        nodes = [self._nodes[state] for state in states.tolist()]
        return np.array([self._owed(node) - node.within for node in nodes])

    def _move(self, state: int, token: int) -> tuple[int, float]:
        move = self._moves.get((state, token))
        if move is None:
            if len(self._moves) >= MOST_MOVES:
                self._moves.clear()
            gain, at = 0.0, state
            for character in self._tokenizer.piece(token):
                at, gained = self._step(at, character)
                gain += gained
            move = self._moves[state, token] = at, gain
        return move

    def _step(self, state: int, character: str) -> tuple[int, float]:
        node = self._nodes[state]
        is_word_end = character == WORD_START
        if is_word_end and node.is_mark:
            return state, 0.0  # marks in a row are one
        gain = node.within if is_word_end else 0.0
        following = node.children.get(character)
        if following is not None:
            return following, gain + self._nodes[following].given - node.given
        if not (node.is_end and is_word_end):
            gain -= node.given - node.kept
        while following is None and node is not self._nodes[_ROOT]:
            node = self._nodes[node.fallback]
            following = node.children.get(character)
        if following is None:
            return _ROOT, gain
        # What a suffix has finished was counted when it was `within` the longer prefix.
        return following, gain + self._nodes[following].given - self._nodes[following].kept

    def _owed(self, node: _Node) -> float:
        return 0.0 if node.is_end else node.given - node.kept

    def _insert(self, spelling: str, rate: float) -> None:
        at = _ROOT
        for length, character in enumerate(spelling, start=1):
            following = self._nodes[at].children.get(character)
            if following is None:
                following = len(self._nodes)
                self._nodes[at].children[character] = following
                self._nodes.append(_Node(0.0, 0.0, is_mark=character == WORD_START))
            at = following
            self._nodes[at].given = max(self._nodes[at].given, rate * length)

    def _close(self, spelling: str, total: float) -> None:
        at = _ROOT
        for character in spelling:
            at = self._nodes[at].children[character]
        self._nodes[at].is_end = True
        self._nodes[at].given = total

    def _link(self) -> None:
        """Fallbacks and what is kept, shortest prefixes first."""
        waiting = deque([_ROOT])
        while waiting:
            at = waiting.popleft()
            node = self._nodes[at]
            for character, following in node.children.items():
                child = self._nodes[following]
                is_word_end = character == WORD_START
                child.kept = node.given if node.is_end and is_word_end else node.kept
                child.fallback = self._fallback(at, character)
                suffix = self._nodes[child.fallback]
                child.within = suffix.within + (suffix.given - suffix.kept) * suffix.is_end
                waiting.append(following)

    def _fallback(self, parent: int, character: str) -> int:
        at = parent
        while at != _ROOT:
            at = self._nodes[at].fallback
            following = self._nodes[at].children.get(character)
            if following is not None:
                return following
        return _ROOT


def can_spell(phrase: str, tokenizer: Tokenizer) -> bool:
    """Whether some sequence of tokens is written like `phrase`, which needs a word at least."""
    spelling = _spell(phrase)
    pieces = {tokenizer.piece(token) for token in range(len(tokenizer))} - {""}
    longest = max(map(len, pieces), default=0)
    reached = {0}
    for end in range(1, len(spelling) + 1):
        if any(
            b in reached and spelling[b:end] in pieces for b in range(max(0, end - longest), end)
        ):
            reached.add(end)
    return len(spelling) > 1 and len(spelling) in reached


def _spell(phrase: str) -> str:
    return "".join(WORD_START + word for word in phrase.split())


def _total(hotword: Hotword) -> float:
    return hotword.boost * len(hotword.phrase.split())
