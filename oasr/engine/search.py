"""Advances the searches of a batch, each stream's or utterance's by the method it asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oasr.decoding.ctc_greedy import GreedyDecoder
from oasr.decoding.ctc_prefix_beam import PrefixBeamDecoder, TopTokens, advance_all
from oasr.decoding.hotwords import HotwordContext, can_spell
from oasr.decoding.options import DecodingOptions, Hotword
from oasr.decoding.rescored_beam import RescoredBeam, SecondOpinion
from oasr.decoding.tokenizer import Tokenizer
from oasr.engine.isolation import ErrorStage, run_isolated
from oasr.errors import OptionError

Decoder: TypeAlias = GreedyDecoder | PrefixBeamDecoder

REMEMBERED_HOTWORDS: Final = 16  # lists of phrases whose automata are kept


class Posteriors(NamedTuple):
    """The best token of each encoder frame (T,) and its log posterior (T,).

    `top` are the best tokens of each frame, where the search wants to know more than one.
    `encoded` are the encoder frames (T, D). `near_tie` says that the best two tokens of a frame
    are as good as equal; asked for with `top` None alone.
    """

    ids: NDArray[np.int32]
    scores: NDArray[np.float32]
    top: TopTokens | None
    encoded: Tensor
    near_tie: bool = False


class SearchInput(NamedTuple):
    """New frames for one search."""

    decoder: Decoder
    posteriors: Posteriors
    first_frame: int  # encoder frame of the first one, since the request's first sample


class Search:
    """Makes decoders for requests and moves them on."""

    def __init__(
        self, blank_id: int, tokenizer: Tokenizer, opinion: SecondOpinion | None = None
    ) -> None:
        """Without an `opinion` nothing can be rescored."""
        self._blank_id = blank_id
        self._tokenizer = tokenizer
        self._opinion = opinion
        # The requests of one caller have the same phrases, and there are many of those.
        self._context = lru_cache(REMEMBERED_HOTWORDS)(self._new_context)

    def check(self, options: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what cannot be honoured."""
        options.check()
        if options.search == "rescoring" and self._opinion is None:
            raise OptionError(
                "search", "search: the model has no attention decoder to rescore with"
            )
        self._context(options.hotwords)

    def decoder(self, options: DecodingOptions) -> Decoder:
        """Search state for a request with these options."""
        if options.search == "greedy":
            return GreedyDecoder(self._blank_id)
        context = self._context(options.hotwords)
        if options.search == "rescoring":
            assert self._opinion is not None  # else `check` refuses
            return RescoredBeam(self._blank_id, options.beam, context, self._opinion)
        return PrefixBeamDecoder(self._blank_id, options.beam, options.beam, context)

    def _new_context(self, hotwords: tuple[Hotword, ...]) -> HotwordContext | None:
        for hotword in hotwords:
            if not can_spell(hotword.phrase, self._tokenizer):
                raise OptionError("hotwords", f"hotwords: no tokens can write {hotword.phrase!r}")
        return HotwordContext(hotwords, self._tokenizer) if hotwords else None

    @staticmethod
    def top(options: DecodingOptions) -> int:
        """How many of a frame's tokens a search wants to know; 0: the best one is enough."""
        return 0 if options.search == "greedy" else options.beam

    def advance(self, inputs: Sequence[SearchInput]) -> list[bool | None]:
        """True where the reading is another one now, None where the search raised.

        Beams of one width move in one call. A search that raises harms no other.
        """
        changed: list[bool | None] = [None] * len(inputs)
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for index, row in enumerate(inputs):
            beam = isinstance(row.decoder, PrefixBeamDecoder) and row.decoder.second_beam
            groups[int(beam)].append(index)
        for beam, indices in groups.items():
            rows = [inputs[index] for index in indices]
            if beam:
                found = run_isolated(ErrorStage.DECODE, _advance_beams, rows)
            else:
                found = [run_isolated(ErrorStage.DECODE, _advance_greedy, [row])[0] for row in rows]
            for index, result in zip(indices, found, strict=True):
                changed[index] = result
        for row, is_new in zip(inputs, changed, strict=True):
            if isinstance(row.decoder, RescoredBeam) and is_new is not None:
                row.decoder.see(row.posteriors.encoded)
        return changed


def _advance_beams(rows: Sequence[SearchInput]) -> list[bool]:
    decoders, tops = [], []
    for decoder, posteriors, _ in rows:
        assert isinstance(decoder, PrefixBeamDecoder)
        assert posteriors.top is not None
        decoders.append(decoder)
        tops.append(posteriors.top)
    return advance_all(decoders, tops, [row.first_frame for row in rows])


def _advance_greedy(rows: Sequence[SearchInput]) -> list[bool]:
    changed = []
    for decoder, posteriors, first_frame in rows:
        assert isinstance(decoder, GreedyDecoder)
        decoder.near_tie |= posteriors.near_tie
        changed.append(decoder.update(posteriors.ids, posteriors.scores, first_frame))
    return changed
