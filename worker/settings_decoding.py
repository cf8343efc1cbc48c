"""The group of `worker.settings` that says how audio is decoded unless its messages do."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from oasr.decoding.options import MAX_BEAM, DecodingOptions, SearchMethod
from oasr.errors import OptionError
from worker.decoding_options import MAX_ALTERNATIVES
from worker.settings_groups import Group


class Decoding(Group):
    """How audio is decoded whose messages ask for nothing else."""

    search: SearchMethod = "greedy"
    """`greedy`, `prefix_beam`, or `rescoring`: finals of a beam, put in order by the model's
    attention decoder."""
    beam: Annotated[int, Field(ge=1, le=MAX_BEAM)] = 10
    """Tokens tried in each frame and prefixes kept, where there is a beam."""
    max_alternatives: Annotated[int, Field(ge=1, le=MAX_ALTERNATIVES)] = 1
    """Readings in a final, at most; more than 1 needs a beam."""
    words: bool = False
    """The times of each word."""
    confidences: bool = True
    """How sure the model is of readings and words."""

    @model_validator(mode="after")
    def _possible(self) -> Decoding:
        try:
            self.options().check()
        except OptionError as error:
            raise ValueError(str(error).replace("n_best", "max_alternatives")) from None
        return self

    def options(self) -> DecodingOptions:
        """The engine's name for it."""
        return DecodingOptions(
            search=self.search,
            beam=self.beam,
            n_best=self.max_alternatives,
            word_times=self.words,
            confidences=self.confidences,
            stability=True,
        )
