"""How one request wants to be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from oasr.errors import OptionError

SearchMethod = Literal["greedy", "prefix_beam"]

SEARCH_METHODS: Final[tuple[str, ...]] = get_args(SearchMethod)
MAX_BEAM: Final = 64
MAX_HOTWORDS: Final = 1000
MAX_BOOST: Final = 20.0


@dataclass(frozen=True, slots=True)
class Hotword:
    """A phrase to prefer; `boost` is the gain in log probability for each of its words."""

    phrase: str
    boost: float = 3.0


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """The defaults are greedy search and a plain text."""

    search: SearchMethod = "greedy"
    beam: int = 10  # tokens tried a frame, and prefixes kept; prefix beam search alone
    n_best: int = 1  # readings of the last output, at most; more than one needs prefix_beam
    word_times: bool = False
    confidences: bool = False
    hotwords: tuple[Hotword, ...] = ()  # phrases to prefer; need prefix_beam

    def check(self) -> None:
        """OptionError, whose code is the option's name, where a value cannot be honoured."""
        _require(self.search in SEARCH_METHODS, "search", f"one of {', '.join(SEARCH_METHODS)}")
        _require(1 <= self.beam <= MAX_BEAM, "beam", f"from 1 to {MAX_BEAM}")
        _require(self.n_best >= 1, "n_best", "at least 1")
        if self.search == "greedy":
            _require(self.n_best == 1, "n_best", "1 with greedy search, which has one reading")
            _require(
                not self.hotwords, "hotwords", "empty with greedy search, which cannot heed any"
            )
        _require(self.n_best <= self.beam, "n_best", f"at most the beam ({self.beam})")
        _require(len(self.hotwords) <= MAX_HOTWORDS, "hotwords", f"at most {MAX_HOTWORDS}")
        for hotword in self.hotwords:
            in_range = 0 < hotword.boost <= MAX_BOOST
            _require(in_range, "hotwords", f"boosts above 0 and at most {MAX_BOOST:g}")


def _require(holds: bool, name: str, rule: str) -> None:
    if not holds:
        raise OptionError(name, f"{name} must be {rule}")
