"""What a producer may ask of the search: its options, and what they come to with the defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast, get_args

from oasr.decoding.options import (
    MAX_BEAM,
    MAX_BOOST,
    MAX_HOTWORDS,
    SEARCH_METHODS,
    DecodingOptions,
    Hotword,
    SearchMethod,
)
from worker.errors import CodecError, ErrorCode

MAX_ALTERNATIVES: Final = 10
MAX_PHRASE_CHARACTERS: Final = 200

_WIRE_NAMES: Final = {"n_best": "max_alternatives"}


@dataclass(frozen=True, slots=True)
class AskedDecoding:
    """Options as given; None leaves the choice to the worker's settings."""

    search: SearchMethod | None = None
    beam: int | None = None
    max_alternatives: int | None = None
    words: bool | None = None
    confidences: bool | None = None
    hotwords: tuple[Hotword, ...] | None = None

    def over(self, defaults: DecodingOptions) -> DecodingOptions:
        """What is asked for, and the defaults as far as they go with it.

        Alternatives and hotwords bring a beam along, unless a search is asked for by name.
        CodecError `invalid_options` names an option that contradicts another.
        """
        search = self.search or defaults.search
        if self.search is None and search == "greedy" and self._need_a_beam:
            search = "prefix_beam"
        most = self.max_alternatives
        beam = self.beam or max(defaults.beam, most or 1)
        if most is None:
            most = 1 if search == "greedy" else min(defaults.n_best, beam)
        options = DecodingOptions(
            search=search,
            beam=beam,
            n_best=most,
            word_times=_chosen(self.words, defaults.word_times),
            confidences=_chosen(self.confidences, defaults.confidences),
            stability=defaults.stability,
            hotwords=self.hotwords or (),
        )
        contradiction = options.contradiction()
        if contradiction is not None:
            name, rule = contradiction
            name = _WIRE_NAMES.get(name, name)
            raise CodecError(ErrorCode.INVALID_OPTIONS, f"option {name} must be {rule}")
        return options

    @property
    def _need_a_beam(self) -> bool:
        return bool(self.hotwords) or (self.max_alternatives or 1) > 1


def _chosen(asked: bool | None, default: bool) -> bool:
    return default if asked is None else asked


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, "is neither true nor false")
    return value


def _search(name: str, value: object) -> SearchMethod:
    for method in get_args(SearchMethod):
        if method == value:
            return cast(SearchMethod, method)
    raise invalid(name, f"is none of {', '.join(SEARCH_METHODS)}")


def integer(name: str, value: object, low: int, high: int) -> int:
    """An integer of a range; CodecError names the option."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise invalid(name, f"is no integer of {low} to {high}")
    return value


def _beam(name: str, value: object) -> int:
    return integer(name, value, 1, MAX_BEAM)


def _alternatives(name: str, value: object) -> int:
    return integer(name, value, 1, MAX_ALTERNATIVES)


def _hotwords(name: str, value: object) -> tuple[Hotword, ...]:
    if not isinstance(value, list) or len(value) > MAX_HOTWORDS:
        raise invalid(name, f"is no list of at most {MAX_HOTWORDS} phrases")
    return tuple(_hotword(f"{name}[{index}]", item) for index, item in enumerate(value))


def _hotword(name: str, item: object) -> Hotword:
    fields: Mapping[str, Any] = item if isinstance(item, dict) else {"phrase": item}
    phrase, boost = fields.get("phrase"), fields.get("boost", 3.0)
    if fields.keys() - {"phrase", "boost"}:
        raise invalid(name, "has a field that is neither phrase nor boost")
    if not isinstance(phrase, str) or not 0 < len(phrase.strip()) <= MAX_PHRASE_CHARACTERS:
        raise invalid(name, f"is no phrase of 1 to {MAX_PHRASE_CHARACTERS} characters")
    is_number = isinstance(boost, int | float) and not isinstance(boost, bool)
    if not is_number or not (math.isfinite(boost) and 0 < boost <= MAX_BOOST):
        raise invalid(name, f"has a boost that is not above 0 and at most {MAX_BOOST:g}")
    return Hotword(phrase, float(boost))


def invalid(name: str, what: str) -> CodecError:
    """The refusal of an option's value."""
    return CodecError(ErrorCode.INVALID_OPTIONS, f"option {name} {what}")


PARSERS: Final[Mapping[str, Callable[[str, object], Any]]] = MappingProxyType(
    {
        "search": _search,
        "beam": _beam,
        "max_alternatives": _alternatives,
        "words": _flag,
        "confidences": _flag,
        "hotwords": _hotwords,
    }
)
