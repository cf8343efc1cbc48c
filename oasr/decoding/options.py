"""How one request wants to be decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args

from oasr.errors import OptionError

SearchMethod = Literal["greedy", "prefix_beam", "rescoring"]
Task = Literal["transcribe", "translate"]

SEARCH_METHODS: Final[tuple[str, ...]] = get_args(SearchMethod)
TASKS: Final[tuple[str, ...]] = get_args(Task)
AUTO_LANGUAGE: Final = "auto"
MAX_PROMPT_CHARACTERS: Final = 1000
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
    beam: int = 10  # tokens tried a frame, and prefixes kept; not with greedy search
    n_best: int = 1  # readings of the last output, at most; more than one needs a beam
    word_times: bool = False
    confidences: bool = False
    stability: bool = False
    hotwords: tuple[Hotword, ...] = ()  # phrases to prefer; need a beam
    language: str | None = None  # BCP 47, or "auto": the model finds out; None: its usual one
    task: Task = "transcribe"  # translate: into English
    initial_prompt: str = ""  # what may have been said before: names, spelling, style

    def check(self) -> None:
        """OptionError, whose code is the option's name, where a value cannot be honoured."""
        found = self.contradiction()
        if found is not None:
            raise OptionError(found[0], f"{found[0]} must be {found[1]}")

    def contradiction(self) -> tuple[str, str] | None:
        """The name of an option whose value cannot be honoured, and what it must be."""
        return next(((name, rule) for holds, name, rule in self._rules() if not holds), None)

    def _rules(self) -> Iterator[tuple[bool, str, str]]:
        yield self.search in SEARCH_METHODS, "search", f"one of {', '.join(SEARCH_METHODS)}"
        yield 1 <= self.beam <= MAX_BEAM, "beam", f"from 1 to {MAX_BEAM}"
        yield self.n_best >= 1, "n_best", "at least 1"
        has_beam = self.search != "greedy"
        yield has_beam or self.n_best == 1, "n_best", "1 with greedy search, which has one reading"
        yield (
            has_beam or not self.hotwords,
            "hotwords",
            "empty with greedy search, which cannot heed any",
        )
        yield self.n_best <= self.beam, "n_best", f"at most the beam ({self.beam})"
        yield len(self.hotwords) <= MAX_HOTWORDS, "hotwords", f"at most {MAX_HOTWORDS}"
        yield self.task in TASKS, "task", f"one of {', '.join(TASKS)}"
        short = len(self.initial_prompt) <= MAX_PROMPT_CHARACTERS
        yield short, "initial_prompt", f"at most {MAX_PROMPT_CHARACTERS} characters"
        in_range = all(0 < hotword.boost <= MAX_BOOST for hotword in self.hotwords)
        yield in_range, "hotwords", f"boosts above 0 and at most {MAX_BOOST:g}"
