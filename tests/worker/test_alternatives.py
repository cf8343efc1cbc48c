"""What was heard lies on the media clock, inside its segment."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.words import Word as HeardWord
from oasr.engine.request import Alternative as Reading
from oasr.engine.request import RequestOutput
from worker.alternatives import Alternative, Place, Word, alternatives_of, stable_part

PLACE = Place(start_sample=80_000, end_sample=96_000, sample_rate=8_000)


def heard(*words: HeardWord, confidence: float | None = None) -> RequestOutput:
    text = " ".join(word.text for word in words)
    return RequestOutput("r", text, words=words, confidence=confidence)


def test_words_lie_on_the_clock_of_the_channel() -> None:
    output = heard(HeardWord("a", 1_600, 3_201), HeardWord("b", 16_000, 24_000))

    (only,) = alternatives_of(output, PLACE)

    assert only == Alternative("a b", None, (Word("a", 80_800, 81_600), Word("b", 88_000, 92_000)))


def test_what_was_heard_behind_the_cut_is_held_to_the_cut() -> None:
    output = heard(HeardWord("a", 31_000, 33_000), HeardWord("b", 40_000, 48_000))

    (only,) = alternatives_of(output, PLACE)

    assert only.words == (Word("a", 95_500, 96_000), Word("b", 96_000, 96_000))


def test_the_readings_of_a_beam_are_the_alternatives() -> None:
    readings = (
        Reading("a b", (1, 2), -1.0, 0.9, (HeardWord("a", 0, 160), HeardWord("b", 160, 320))),
        Reading("a", (1,), -2.0),
    )
    output = RequestOutput("r", "a b", confidence=0.9, nbest=readings)

    assert alternatives_of(output, PLACE) == (
        Alternative("a b", 0.9, (Word("a", 80_000, 80_080), Word("b", 80_080, 80_160))),
        Alternative("a"),
    )


@pytest.mark.parametrize(
    ("confidence", "shown"),
    [(None, None), (1.0, 1.0), (0.98765, 0.988), (0.0004, 0.001), (1e-30, 0.001)],
)
def test_a_confidence_has_three_digits_and_is_never_taken_for_unknown(
    confidence: float | None, shown: float | None
) -> None:
    output = heard(HeardWord("a", 0, 160, confidence), confidence=confidence)

    (only,) = alternatives_of(output, PLACE)

    assert only.confidence == shown
    assert only.words[0].confidence == shown


PARTIAL = RequestOutput(
    "r",
    "a b c",
    confidence=0.9,
    words=(HeardWord("a", 0, 1), HeardWord("b", 1, 2), HeardWord("c", 2, 3)),
    stability=(1.0, 0.8, 0.4),
)


@pytest.mark.parametrize(
    ("least", "text"), [(0.4, "a b c"), (0.5, "a b"), (0.8, "a b"), (0.9, "a"), (1.0, "a")]
)
def test_a_partial_ends_before_the_first_word_that_is_not_stable_enough(
    least: float, text: str
) -> None:
    part = stable_part(PARTIAL, least)

    assert part.text == text == " ".join(word.text for word in part.words)
    assert part.stability == PARTIAL.stability[: len(part.words)]
    assert part.confidence == (0.9 if text == PARTIAL.text else None)


def test_nothing_is_held_back_where_nobody_asks_or_nothing_is_known() -> None:
    unknown = replace(PARTIAL, stability=())

    assert stable_part(PARTIAL, 0.0) is PARTIAL
    assert stable_part(unknown, 0.5) is unknown


@settings(deadline=None, max_examples=200)
@given(
    start=st.integers(0, 2**40),
    length=st.integers(0, 10**6),
    rate=st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000]),
    edges=st.lists(st.integers(0, 10**6), min_size=2, max_size=12).map(sorted),
)
def test_times_rise_and_stay_inside_the_segment(
    start: int, length: int, rate: int, edges: list[int]
) -> None:
    pairs = zip(edges[::2], edges[1::2], strict=False)
    output = heard(*(HeardWord("w", begin, end) for begin, end in pairs))

    (only,) = alternatives_of(output, Place(start, start + length, rate))

    times = [time for word in only.words for time in (word.start_sample, word.end_sample)]
    assert times == sorted(times)
    for model_sample, time in zip(edges, times, strict=False):
        exact = min(start + Fraction(model_sample * rate, 16_000), Fraction(start + length))
        assert 0 <= exact - time < 1
