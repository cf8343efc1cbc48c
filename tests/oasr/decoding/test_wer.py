"""Word errors against an exhaustive search."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.wer import Wer, WordErrors, word_errors

words = st.lists(st.sampled_from("abc"), max_size=6).map(tuple)


@cache
def fewest_edits(wanted: tuple[str, ...], heard: tuple[str, ...]) -> int:
    if not wanted or not heard:
        return len(wanted) + len(heard)
    return min(
        fewest_edits(wanted[1:], heard[1:]) + (wanted[0] != heard[0]),
        fewest_edits(wanted[1:], heard) + 1,
        fewest_edits(wanted, heard[1:]) + 1,
    )


@settings(deadline=None, max_examples=200)
@given(words, words)
def test_the_edits_are_the_fewest_and_account_for_the_lengths(wanted, heard):
    errors = word_errors(" ".join(wanted), " ".join(heard))

    assert sum(errors) == fewest_edits(wanted, heard)
    assert errors.insertions - errors.deletions == len(heard) - len(wanted)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "errors"),
    [
        ("one two three", "one two three", WordErrors(0, 0, 0)),
        ("one two three", "one too three", WordErrors(1, 0, 0)),
        ("one two three", "one three", WordErrors(0, 1, 0)),
        ("one two", "oh one two", WordErrors(0, 0, 1)),
        ("", "one", WordErrors(0, 0, 1)),
        ("  one\ttwo ", "one two", WordErrors(0, 0, 0)),
    ],
)
def test_each_kind_of_error_is_told_apart(reference, hypothesis, errors):
    assert word_errors(reference, hypothesis) == errors


def test_the_rate_is_errors_over_reference_words():
    wer = Wer()
    assert wer.rate == 0.0

    wer.add("one two three", "one too")
    wer.add("four", "four five")

    assert (wer.words, wer.errors) == (4, 3)
    assert (wer.substitutions, wer.deletions, wer.insertions) == (1, 1, 1)
    assert wer.rate == 0.75


def test_words_heard_where_there_are_none_are_an_infinite_rate():
    wer = Wer()
    wer.add("", "hello")

    assert wer.rate == float("inf")
