"""Subtitles fit the screen and the time, say each word once, and lie in their segment."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oasr.subtitle_cues import LINE_CHARS, LINES, LONGEST_MS, cues
from oasr.subtitles import Word

WORDS = st.lists(st.text("abc.,?'", min_size=1, max_size=12), min_size=1, max_size=80)


@given(words=WORDS, start=st.integers(0, 10_000), length=st.integers(0, 60_000))
def test_cues_hold_the_text_in_order_within_the_segment_and_the_screen(words, start, length):
    text = " ".join(words)

    found = cues(text, start, start + length)

    assert " ".join(cue.text.replace("\n", " ") for cue in found) == text
    assert (found[0].start_ms, found[-1].end_ms) == (start, start + length)
    for cue in found:
        lines = cue.text.split("\n")
        assert cue.start_ms <= cue.end_ms
        assert len(lines) <= LINES
        assert all(len(line) <= LINE_CHARS for line in lines)
    assert all(one.end_ms <= other.start_ms for one, other in pairwise(found))


def test_a_long_sentence_is_parted_behind_a_mark_and_at_the_times_of_its_words():
    said = (
        "it was not so much the loss of the cotton itself, but the fantasy, the hopes, the dreams"
    )
    text = said.split()
    words = [Word(word, 300 * n, 300 * n + 250, 1.0) for n, word in enumerate(text)]

    found = cues(said, 0, 6_000, words)

    assert [cue.text for cue in found] == [
        "it was not so much the loss of the cotton\nitself, but the fantasy, the hopes,",
        "the dreams",
    ]
    assert [(cue.start_ms, cue.end_ms) for cue in found] == [(0, 4_750), (4_800, 6_000)]


def test_the_last_word_is_not_shown_alone():
    found = cues("and so my fellow ask not what your country can do for you", 0, 7_400)

    assert [cue.text for cue in found] == [
        "and so my fellow ask not what",
        "your country can do for you",
    ]


def test_slow_speech_does_not_stand_for_longer_than_it_can_be_looked_at():
    found = cues("one two three four", 0, 28_000)

    assert [cue.text for cue in found] == ["one", "two", "three", "four"]
    assert all(cue.end_ms - cue.start_ms <= LONGEST_MS + 2_000 for cue in found)


def test_words_longer_than_a_line_stay_whole():
    assert [cue.text for cue in cues("a" * 60, 0, 1_000)] == ["a" * 60]
