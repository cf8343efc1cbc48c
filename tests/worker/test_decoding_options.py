"""What producers ask of the search is taken as given, completed by the defaults, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.options import DecodingOptions, Hotword
from worker.decoding_options import MAX_ALTERNATIVES, AskedDecoding
from worker.errors import CodecError, ErrorCode
from worker.options import parse_options


def asked(**options: Any) -> AskedDecoding:
    return parse_options(options).asked


def test_options_are_taken_as_given() -> None:
    found = asked(
        search="prefix_beam",
        beam=20,
        max_alternatives=4,
        words=True,
        confidences=False,
        hotwords=["acme corporation", {"phrase": "zed"}, {"phrase": "kay", "boost": 5}],
    )

    assert found == AskedDecoding(
        search="prefix_beam",
        beam=20,
        max_alternatives=4,
        words=True,
        confidences=False,
        hotwords=(Hotword("acme corporation"), Hotword("zed"), Hotword("kay", 5.0)),
    )
    assert found.over(DecodingOptions()) == DecodingOptions(
        search="prefix_beam",
        beam=20,
        n_best=4,
        word_times=True,
        confidences=False,
        hotwords=(Hotword("acme corporation"), Hotword("zed"), Hotword("kay", 5.0)),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("words", 1),
        ("words", None),
        ("confidences", "yes"),
        ("search", "lattice"),
        ("search", None),
        ("search", ["greedy"]),
        ("beam", 0),
        ("beam", 65),
        ("beam", True),
        ("beam", 10.0),
        ("max_alternatives", 0),
        ("max_alternatives", MAX_ALTERNATIVES + 1),
        ("hotwords", "acme"),
        ("hotwords", None),
        ("hotwords", {"acme": 3}),
        ("hotwords", [""]),
        ("hotwords", ["  "]),
        ("hotwords", [7]),
        ("hotwords", [None]),
        ("hotwords", ["x" * 201]),
        ("hotwords", ["a"] * 1001),
        ("hotwords", [{"boost": 3}]),
        ("hotwords", [{"phrase": "a", "boost": 0}]),
        ("hotwords", [{"phrase": "a", "boost": -1}]),
        ("hotwords", [{"phrase": "a", "boost": 20.5}]),
        ("hotwords", [{"phrase": "a", "boost": True}]),
        ("hotwords", [{"phrase": "a", "boost": "3"}]),
        ("hotwords", [{"phrase": "a", "weight": 3}]),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(CodecError) as caught:
        parse_options({name: value})

    assert caught.value.code is ErrorCode.INVALID_OPTIONS
    assert name in caught.value.message


def test_a_bad_phrase_is_named_by_its_place_and_not_quoted() -> None:
    with pytest.raises(CodecError) as caught:
        parse_options({"hotwords": ["fine", {"phrase": "secret", "boost": 99}]})

    assert "hotwords[1]" in caught.value.message
    assert "secret" not in caught.value.message


def test_what_is_not_asked_for_is_the_default() -> None:
    defaults = DecodingOptions("prefix_beam", 12, 3, word_times=True, confidences=True)

    assert asked().over(defaults) == defaults


@pytest.mark.parametrize("options", [{"hotwords": ["acme"]}, {"max_alternatives": 2}])
def test_what_needs_a_beam_brings_it_along(options: dict[str, Any]) -> None:
    assert asked(**options).over(DecodingOptions()).search == "prefix_beam"


@pytest.mark.parametrize("options", [{"hotwords": []}, {"max_alternatives": 1}, {"beam": 4}])
def test_what_needs_no_beam_brings_none(options: dict[str, Any]) -> None:
    assert asked(**options).over(DecodingOptions()).search == "greedy"


def test_the_default_number_of_alternatives_gives_way_to_what_is_asked_for() -> None:
    defaults = DecodingOptions("prefix_beam", 10, 5)

    assert asked(search="greedy").over(defaults).n_best == 1
    assert asked(beam=3).over(defaults).n_best == 3
    assert asked(max_alternatives=8).over(DecodingOptions(beam=4)).beam == 8


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"search": "greedy", "hotwords": ["acme"]}, "hotwords"),
        ({"search": "greedy", "max_alternatives": 2}, "max_alternatives"),
        ({"search": "prefix_beam", "beam": 2, "max_alternatives": 3}, "max_alternatives"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], name: str) -> None:
    with pytest.raises(CodecError) as caught:
        asked(**options).over(DecodingOptions())

    assert caught.value.code is ErrorCode.INVALID_OPTIONS
    assert name in caught.value.message


@st.composite
def defaults(draw: st.DrawFn) -> DecodingOptions:
    search = draw(st.sampled_from(["greedy", "prefix_beam"]))
    beam = draw(st.integers(1, 64))
    n_best = 1 if search == "greedy" else draw(st.integers(1, min(beam, MAX_ALTERNATIVES)))
    return DecodingOptions(search, beam, n_best)


@settings(deadline=None, max_examples=300)
@given(
    defaults(),
    st.none() | st.sampled_from(["greedy", "prefix_beam"]),
    st.none() | st.integers(1, 64),
    st.none() | st.integers(1, MAX_ALTERNATIVES),
    st.none() | st.lists(st.sampled_from([Hotword("a"), Hotword("b", 20.0)]), max_size=2),
)
def test_whatever_is_asked_for_the_engine_takes_or_the_producer_hears_of_it(
    defaults: DecodingOptions,
    search: Any,
    beam: int | None,
    most: int | None,
    hotwords: list[Hotword] | None,
) -> None:
    wanted = AskedDecoding(
        search, beam, most, hotwords=None if hotwords is None else tuple(hotwords)
    )
    contradicts = search == "greedy" and (bool(hotwords) or (most or 1) > 1)
    if contradicts or (beam or 64) < (most or 1):
        with pytest.raises(CodecError):
            wanted.over(defaults)
        return
    options = wanted.over(defaults)

    options.check()
    assert options.search == search or search is None
    assert options.beam == beam or beam is None
    assert options.n_best == most or most is None
