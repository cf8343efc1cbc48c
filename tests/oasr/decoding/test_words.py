"""Word texts, times and confidences from tokens and their frames."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.loudness import LEVEL_SAMPLES, Sounds
from oasr.decoding.tokenizer import Tokenizer
from oasr.decoding.words import LEAD_SAMPLES, TAIL_SAMPLES, Word, confidence, words_of

PIECES = ["<blank>", "▁", "▁the", "re", "'", "s", "▁a▁b", "c", "你"]
TOKENIZER = Tokenizer(PIECES)
FRAME = 640

emissions = st.lists(
    st.tuples(st.integers(0, len(PIECES) - 1), st.integers(1, 40), st.floats(-9, 0)), max_size=30
)


def words(tokens: list[int], frames: list[int], end_sample: int = 1 << 40) -> list[Word]:
    return words_of(TOKENIZER, tokens, frames, [-0.1] * len(tokens), FRAME, end_sample)


@settings(deadline=None, max_examples=300)
@given(
    emissions,
    st.integers(0, 60_000),
    st.none() | st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=20),
)
def test_words_join_to_the_transcript_rise_and_stay_inside(path, end_sample, runs):
    sounds = None
    if runs is not None:
        sounds = Sounds(np.array([on for on, levels in runs for _ in range(levels)], np.bool_))
    tokens = [token for token, _, _ in path]
    frames = [sum(step for _, step, _ in path[: i + 1]) for i in range(len(path))]
    scores = [score for _, _, score in path]

    found = words_of(TOKENIZER, tokens, frames, scores, FRAME, end_sample, sounds)

    assert " ".join(w.text for w in found) == TOKENIZER.decode(tokens)
    edges = [edge for w in found for edge in (w.start_sample, w.end_sample)]
    assert edges == sorted(edges)
    assert all(0 <= edge <= end_sample for edge in edges)
    assert all(w.confidence is not None and 0 < w.confidence <= 1 for w in found)


def test_a_lone_word_begins_before_its_first_peak_and_ends_after_its_last():
    (word,) = words([2, 3, 4, 5], [50, 52, 53, 60])

    assert word.text == "there's"
    assert word.start_sample == 50 * FRAME - LEAD_SAMPLES
    assert word.end_sample == 60 * FRAME + TAIL_SAMPLES


def test_close_words_meet_half_way_between_their_peaks():
    first, second = words([2, 2], [50, 51])

    assert first.end_sample == second.start_sample == (50 * FRAME + 51 * FRAME) // 2


def test_a_mark_alone_begins_the_word_that_follows_it():
    (word,) = words([1, 7], [40, 50])

    assert (word.text, word.start_sample) == ("c", 40 * FRAME - LEAD_SAMPLES)


def test_a_piece_that_holds_two_words_gives_both_its_frame():
    first, second = words([6], [30])

    assert (first.text, second.text) == ("a", "b")
    assert first.end_sample == second.start_sample == 30 * FRAME


def test_special_tokens_leave_no_word():
    assert words([0, 0], [3, 9]) == []


def test_a_word_is_as_sure_as_its_tokens_are_on_average():
    scores = [math.log(p) for p in (0.5, 0.7, 0.9)]

    found = words_of(TOKENIZER, [2, 3, 2], [5, 6, 20], scores, FRAME, 1 << 40)

    assert [w.confidence for w in found] == pytest.approx([0.6, 0.9])
    assert confidence(scores) == pytest.approx(0.7)
    assert confidence([]) is None


def heard(*spans: tuple[int, int], levels: int = 1000) -> Sounds:
    """Sounds that are heard in these spans of levels."""
    flags = np.zeros(levels, np.bool_)
    for begin, end in spans:
        flags[begin:end] = True
    return Sounds(flags)


def edges(frames: list[int], sounds: Sounds) -> list[tuple[float, float]]:
    """Begin and end of one-token words, in levels."""
    found = words_of(
        TOKENIZER, [2] * len(frames), frames, [-0.1] * len(frames), FRAME, 1 << 40, sounds
    )
    return [(w.start_sample / LEVEL_SAMPLES, w.end_sample / LEVEL_SAMPLES) for w in found]


def test_a_word_that_stands_alone_has_the_edges_of_its_sound():
    assert edges([25], heard((70, 115))) == [(70, 115)]


def test_a_peak_just_after_its_sound_belongs_to_it():
    assert edges([25], heard((70, 90))) == [(70, 90)]


def test_a_short_silence_inside_a_word_is_part_of_it_and_a_pause_is_not():
    assert edges([25], heard((60, 80), (89, 99), (108, 120), (140, 160))) == [(60, 120)]


def test_words_on_both_sides_of_a_pause_keep_out_of_it():
    first, second = edges([25, 45], heard((90, 110), (160, 190)))

    assert (first, second) == ((90, 110), (160, 190))


def test_a_peak_far_from_any_sound_and_a_sound_without_end_give_the_usual_edges():
    usual = [(100 - LEAD_SAMPLES / LEVEL_SAMPLES, 100 + TAIL_SAMPLES / LEVEL_SAMPLES)]

    assert edges([25], heard()) == usual
    assert edges([25], heard((1, 999))) == usual


def test_a_sound_that_begins_or_ends_with_the_audio_does_so_with_the_word():
    assert edges([4], heard((0, 30))) == [(0, 30)]
    assert edges([4], heard((5, 20), levels=20)) == [(5, 20)]
