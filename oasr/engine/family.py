"""What the engine asks of a model, whatever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from oasr.decoding.options import AUTO_LANGUAGE, DecodingOptions, SearchMethod
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.errors import OptionError
from oasr.models.registry import ModelInfo


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do; what it cannot is refused when a request comes."""

    streaming: bool
    searches: tuple[SearchMethod, ...]  # values of `DecodingOptions.search`, the usual one first
    usual_beam: int = 10  # of searches that have one
    alternatives: bool = True  # more readings than one
    hotwords: bool = True
    stretches: bool = False  # reads long recordings, leaves pauses out and parts its text itself
    languages: tuple[str, ...] = ()  # that it speaks; empty: nobody has said
    detects_language: bool = False
    translates: bool = False
    prompts: bool = False

    def check(self, decoding: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what the model cannot do."""
        if decoding.search not in self.searches:
            known = ", ".join(self.searches)
            raise OptionError("search", f"search: the model has {known} alone")
        if decoding.n_best > 1 and not self.alternatives:
            raise OptionError("n_best", "n_best: the model has one reading")
        if decoding.hotwords and not self.hotwords:
            raise OptionError("hotwords", "hotwords: the model cannot prefer phrases")
        if decoding.initial_prompt and not self.prompts:
            raise OptionError("initial_prompt", "initial_prompt: the model takes none")
        if decoding.task != "transcribe" and not self.translates:
            raise OptionError("task", f"task: the model cannot {decoding.task}")
        self._check_language(decoding.language)

    def _check_language(self, language: str | None) -> None:
        if language is None or primary(language) in self.languages:
            return
        if language != AUTO_LANGUAGE:
            raise OptionError("language", "language: the model does not speak it")
        if not self.detects_language and len(self.languages) != 1:
            raise OptionError("language", "language: the model does not tell languages apart")


def primary(language: str) -> str:
    """The language of a BCP 47 tag, without script and region."""
    return language.split("-")[0].lower()


def check_capabilities(capabilities: Capabilities, decoding: DecodingOptions) -> None:
    """OptionError for what contradicts itself, or what the model cannot do."""
    decoding.check()
    capabilities.check(decoding)


class StreamDecoder(Protocol):
    """Decodes live audio."""

    def check(self) -> None:
        """OptionError where the model cannot stream, or not as configured."""

    def open(self, request: Request) -> None:
        """Give an admitted stream its `stream_context`."""

    def close(self, request: Request) -> None:
        """Take back what an ended stream holds, and its context."""

    def has_work(self, request: Request) -> bool:
        """Whether a step would decode something of the stream, or end it."""

    def run(self, running: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """Decode what there is of each; the caller closes those that have finished."""

    def decoded_samples(self, request: Request) -> int:
        """The real samples, of those taken, that an open stream has decoded."""

    def undecoded_samples(self, request: Request) -> int:
        """The real samples that an open stream has taken and not decoded."""

    def measure(self, stats: StepStats) -> None:
        """Write down what the caches hold."""


class ModelFamily(Protocol):
    """One loaded model."""

    @property
    def info(self) -> ModelInfo:
        """Names it."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    @property
    def streams(self) -> StreamDecoder:
        """Its way with live audio; `NoStreams` where it has none."""

    def check_decoding(self, decoding: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what the model cannot do."""

    @property
    def portable_check(self) -> Callable[[DecodingOptions], None]:
        """`check_decoding` as something that can be pickled and knows no weights."""

    def check_utterance(self, request: Request) -> None:
        """OptionError for a whole utterance that the model cannot decode as configured."""

    def cost_frames(self, request: Request) -> int:
        """What an utterance costs in a batch, in feature frames of 10 ms."""

    def decode(self, batch: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """One terminal output for each whole utterance, in the order of `batch`."""


class NoStreams:
    """The way with live audio of a model that has none."""

    def __init__(self, model: str) -> None:
        self._model = model

    def check(self) -> None:
        """Refuses."""
        why = f"the model {self._model} reads recordings alone, no live calls"
        raise OptionError("streaming", why)

    def open(self, request: Request) -> None:
        """Never called: no stream is admitted."""
        raise AssertionError(request)

    def close(self, request: Request) -> None:
        """Never called."""
        raise AssertionError(request)

    def has_work(self, request: Request) -> bool:
        """Never called."""
        raise AssertionError(request)

    def run(self, running: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """Nothing runs."""
        del running, stats
        return []

    def decoded_samples(self, request: Request) -> int:
        """Never called."""
        raise AssertionError(request)

    def undecoded_samples(self, request: Request) -> int:
        """Never called."""
        raise AssertionError(request)

    def measure(self, stats: StepStats) -> None:
        """There are no caches."""
