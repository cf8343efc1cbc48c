"""Subtitles that can be read: a segment as cues of at most two lines.

The limits are those that broadcasters use: 42 characters a line, two lines, seven seconds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

LINE_CHARS: Final = 42
LINES: Final = 2
LONGEST_MS: Final = 7000
ORPHAN_CHARS: Final = 16  # a last cue of less takes words from the one before
_ENDS: Final = (".", "?", "!", ",", ";", ":")


class TimedWord(Protocol):
    """A word with its times."""

    @property
    def text(self) -> str: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def end_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown at once."""

    start_ms: int
    end_ms: int
    text: str  # lines, parted by line feeds


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start_ms: int
    end_ms: int


def cues(text: str, start_ms: int, end_ms: int, words: Sequence[TimedWord] = ()) -> list[Cue]:
    """A segment's text as cues that follow each other and lie within it.

    Between them the times of `words` count where these join to the text, else the text is taken
    to be said at an even pace.
    """
    timed: Sequence[TimedWord] = words
    if [word.text for word in timed] != text.split():
        timed = list(_evenly(text.split(), start_ms, end_ms))
    found: list[Cue] = []
    for group in _groups(timed):
        is_first, is_last = not found, group[-1] is timed[-1]
        begin = start_ms if is_first else max(found[-1].end_ms, group[0].start_ms)
        end = end_ms if is_last else max(begin, group[-1].end_ms)
        found.append(Cue(begin, end, "\n".join(_lines(group))))
    return found or [Cue(start_ms, end_ms, text)]


def _evenly(words: Sequence[str], start_ms: int, end_ms: int) -> Iterator[_Word]:
    whole = sum(map(len, words)) + len(words)
    before = 0
    for word in words:
        after = before + len(word) + 1
        yield _Word(
            word,
            start_ms + (end_ms - start_ms) * before // whole,
            start_ms + (end_ms - start_ms) * after // whole,
        )
        before = after


def _groups(words: Sequence[TimedWord]) -> Iterator[list[TimedWord]]:
    """Words of a cue each, parted behind marks where that does not leave much of it empty."""
    rest = list(words)
    while rest:
        count = _fitting(rest)
        if count < len(rest):
            marks = [n for n in range(1, count + 1) if rest[n - 1].text.endswith(_ENDS)]
            if marks and marks[-1] * 2 >= count:
                count = marks[-1]
            elif sum(len(word.text) + 1 for word in rest[count:]) < ORPHAN_CHARS:
                count = min(count, (len(rest) + 1) // 2)
        yield rest[:count]
        rest = rest[count:]


def _fitting(words: Sequence[TimedWord]) -> int:
    """How many words fit into one cue, at least one."""
    count = 1
    while count < len(words):
        more = words[: count + 1]
        if len(_lines(more)) > LINES or more[-1].end_ms - more[0].start_ms > LONGEST_MS:
            break
        count += 1
    return count


def _lines(words: Sequence[TimedWord]) -> list[str]:
    """As few lines as possible, of about the same length."""
    text = " ".join(word.text for word in words)
    lines = textwrap.wrap(text, LINE_CHARS, break_on_hyphens=False, break_long_words=False)
    for width in range(-(-len(text) // max(1, len(lines))), LINE_CHARS):
        even = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
        if len(even) == len(lines):
            return even
    return lines
