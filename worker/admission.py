"""What a message's options mean for this worker, and which of them it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import compress
from typing import Final, Protocol

from oasr.decoding.options import AUTO_LANGUAGE, DecodingOptions
from oasr.engine.family import primary
from oasr.errors import OptionError
from worker.errors import CodecError, ErrorCode
from worker.options import SessionOptions

REMEMBERED_OPTIONS: Final = 256


class Admits(Protocol):
    """Who decides on a message's options."""

    def admit(self, options: SessionOptions) -> SessionOptions:
        """The options as they are honoured; CodecError for what cannot be."""


class Admission:
    """Refuses what the model cannot do, and says how the rest is decoded."""

    def __init__(
        self,
        languages: tuple[str, ...],
        defaults: DecodingOptions | None = None,
        check: Callable[[DecodingOptions], None] = DecodingOptions.check,
    ) -> None:
        """`check` is the engine's; `defaults` decode what does not ask for anything else.

        OptionError where the model cannot honour the defaults.
        """
        self._languages = languages
        self._defaults = DecodingOptions() if defaults is None else defaults
        self._check = check
        check(self._defaults)
        # Every message of a call repeats its options.
        self._remembered = lru_cache(REMEMBERED_OPTIONS)(self._resolve)

    def admit(self, options: SessionOptions) -> SessionOptions:
        """The options with their `decoding`, without what the model cannot honour.

        Raises CodecError: `option_unsupported` by name, `invalid_options` for a contradiction.
        Of a lenient producer what is unsupported becomes a warning.
        """
        return self._remembered(options)

    def knows(self, language: str) -> bool:
        """Whether the model speaks a language, a BCP 47 tag."""
        return primary(language) in self._languages

    def _resolve(self, options: SessionOptions) -> SessionOptions:
        options = self._writable(self._hearable(self._speakable(options)))
        decoding = self._decoding(options)
        try:
            self._check(decoding)
        except OptionError as error:
            what = f"the model cannot honour the option {error.code}"
            if error.code != "search" or options.asked.search is None:
                raise CodecError(ErrorCode.OPTION_UNSUPPORTED, what) from None
            options = warned(options, "search", what)
            options = replace(options, asked=replace(options.asked, search=None))
            decoding = self._decoding(options)
        return replace(options, decoding=decoding)

    def _decoding(self, options: SessionOptions) -> DecodingOptions:
        return replace(options.asked.over(self._defaults), language=options.language)

    def _speakable(self, options: SessionOptions) -> SessionOptions:
        language = options.language
        if language is None or self.knows(language):
            return options
        what = "the model does not know the language"
        if language == AUTO_LANGUAGE:
            if self._can(DecodingOptions(language=AUTO_LANGUAGE)):
                return options
            what = "the model does not tell languages apart"
        options = warned(options, "language", what)
        return replace(options, language=None)

    def _hearable(self, options: SessionOptions) -> SessionOptions:
        vad = options.endpointing.vad
        if vad is None or vad.is_installed:
            return options
        options = warned(options, "vad", f"this worker comes without the vad {vad}")
        return replace(options, endpointing=replace(options.endpointing, vad=None))

    def _writable(self, options: SessionOptions) -> SessionOptions:
        hotwords = options.asked.hotwords or ()
        written = [
            self._can(DecodingOptions(search="prefix_beam", hotwords=(hotword,)))
            for hotword in hotwords
        ]
        if all(written):
            return options
        what = f"the model cannot write the phrase hotwords[{written.index(False)}]"
        options = warned(options, "hotwords", what)
        spelled = tuple(compress(hotwords, written))
        return replace(options, asked=replace(options.asked, hotwords=spelled))

    def _can(self, decoding: DecodingOptions) -> bool:
        try:
            self._check(decoding)
        except OptionError:
            return False
        return True


def warned(options: SessionOptions, name: str, what: str) -> SessionOptions:
    """The options of a lenient producer with a warning; CodecError for all others."""
    if not options.lenient:
        raise CodecError(ErrorCode.OPTION_UNSUPPORTED, what)
    warning = f"{ErrorCode.OPTION_UNSUPPORTED.value}:{name}"
    return replace(options, warnings=(*options.warnings, warning))
