"""The stability of words, from readings whose shares are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.options import DecodingOptions, SearchMethod
from oasr.decoding.stability import (
    FORGETS_FRAMES,
    GOES_ON_AT_ONCE,
    stabilities,
    stable_count,
)
from oasr.engine.request import RequestOutput
from tests.support.engine import make_engine, noise, tiny_model

LONG_AGO = 10_000


def test_of_one_reading_only_the_last_word_can_change() -> None:
    found = stabilities([(["a", "b", "c"], -7.0)], 0)

    assert found == (1.0, 1.0, pytest.approx(1.0 - GOES_ON_AT_ONCE))


def test_a_word_goes_on_less_the_longer_nothing_follows() -> None:
    found = [stabilities([(["a"], 0.0)], frames)[0] for frames in range(30)]

    assert found == sorted(found)
    assert found[4] == pytest.approx(1.0 - GOES_ON_AT_ONCE * math.exp(-4 / FORGETS_FRAMES))
    assert stabilities([(["a"], 0.0)], LONG_AGO) == (1.0,)


def test_a_word_is_as_stable_as_the_share_of_readings_that_agree_up_to_it() -> None:
    readings = [
        (["a", "b", "c"], math.log(0.5)),
        (["a", "b"], math.log(0.2)),
        (["a", "x", "c"], math.log(0.2)),
        (["y", "b", "c"], math.log(0.1)),
    ]

    assert stabilities(readings, LONG_AGO) == pytest.approx((0.9, 0.7, 0.5))
    doubts = (0.1, 0.3, 0.5)
    cubed = tuple(1 - doubt**3 for doubt in doubts)
    assert stabilities(readings, LONG_AGO, exponent=3.0) == pytest.approx(cubed)


def test_nothing_said_has_no_stability() -> None:
    assert stabilities([([], -3.0), (["a"], -9.0)], 0) == ()


words = st.lists(st.sampled_from("ab"), max_size=5)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(words, st.floats(-40, 0)), min_size=1, max_size=6),
    st.integers(-2, 40),
    st.sampled_from([1.0, 1.5, 3.0]),
)
def test_stability_is_a_falling_share_and_that_of_a_naive_sum(
    readings: list[tuple[list[str], float]], frames: int, exponent: float
) -> None:
    found = stabilities(readings, frames, exponent)

    best = readings[0][0]
    total = sum(math.exp(score) for _, score in readings)
    naive = [
        1 - (sum(math.exp(s) for w, s in readings if w[:count] != best[:count]) / total) ** exponent
        for count in range(1, len(best) + 1)
    ]
    if naive:
        naive[-1] *= 1 - GOES_ON_AT_ONCE * math.exp(-max(0, frames) / FORGETS_FRAMES)
    assert found == pytest.approx(naive, abs=1e-9)
    assert all(0 <= value <= 1 for value in found)
    assert list(found) == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("least", "count"), [(0.0, 3), (0.5, 3), (0.6, 2), (0.9, 2), (0.95, 1), (1.0, 1)]
)
def test_the_stable_part_ends_before_the_first_word_that_is_not(least: float, count: int) -> None:
    assert stable_count((1.0, 0.9, 0.5), least) == count


@pytest.mark.parametrize("search", ["greedy", "prefix_beam"])
def test_partials_have_the_stability_of_each_word_where_it_is_asked_for(
    search: SearchMethod,
) -> None:
    engine = make_engine(tiny_model(), chunk_size=4)
    audio = noise(40_000, 3)

    def outputs(stability: bool) -> list[RequestOutput]:
        options = DecodingOptions(search, stability=stability)
        request_id = engine.add_streaming_request("only", decoding=options)
        engine.feed_chunk(request_id, audio, is_last=True)
        return engine.run()

    *partials, final = outputs(stability=True)
    assert partials
    assert final.stability == ()
    for output in partials:
        assert len(output.stability) == len(output.text.split())
        assert all(0 <= value <= 1 for value in output.stability)
        if search == "greedy":
            assert set(output.stability[:-1]) <= {1.0}
            assert output.stability[-1] < 1.0
    assert not any(output.stability for output in outputs(stability=False))
