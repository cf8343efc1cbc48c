"""Search state to `RequestOutput`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from oasr.decoding.ctc_greedy import GreedyDecoder
from oasr.decoding.ctc_prefix_beam import Hypothesis, PrefixBeamDecoder
from oasr.decoding.loudness import Sounds
from oasr.decoding.near_ties import is_near_tie
from oasr.decoding.stability import BEAM_EXPONENT, RESCORED_EXPONENT, stabilities
from oasr.decoding.tokenizer import Tokenizer
from oasr.decoding.words import Word, confidence, words_of
from oasr.engine.geometry import WindowGeometry
from oasr.engine.isolation import ErrorStage
from oasr.engine.request import Alternative, FinishReason, Request, RequestOutput
from oasr.engine.search import Decoder

SAMPLES_PER_FEATURE_FRAME: Final = 160
_EXPONENTS: Final[Mapping[str, float]] = MappingProxyType(
    {"greedy": 1.0, "prefix_beam": BEAM_EXPONENT, "rescoring": RESCORED_EXPONENT}
)


class _Reading(NamedTuple):
    """Tokens with the encoder frame and the log posterior of each."""

    tokens: Sequence[int]
    frames: Sequence[int]
    scores: Sequence[float]


class OutputProcessor:
    """Writes outputs; knows the tokenizer and which samples an encoder frame stands for."""

    def __init__(self, tokenizer: Tokenizer, geometry: WindowGeometry) -> None:
        self._tokenizer = tokenizer
        self._geometry = geometry
        self._samples_per_frame = geometry.subsampling_rate * SAMPLES_PER_FEATURE_FRAME

    def text(self, decoder: Decoder) -> str:
        return self._tokenizer.decode(decoder.tokens)

    def partial(
        self,
        request: Request,
        decoder: Decoder,
        decoded_samples: int,
        sounds: Sounds | None = None,
    ) -> RequestOutput:
        """What a stream says so far; all its tokens. `sounds` make its word times exact."""
        reading = _Reading(decoder.tokens, decoder.token_frames, decoder.scores)
        output = self._write(request, reading, decoded_samples, sounds, None)
        if not request.decoding.stability:
            return output
        return replace(output, stability=self._stability(request, decoder, output))

    def _stability(
        self, request: Request, decoder: Decoder, output: RequestOutput
    ) -> tuple[float, ...]:
        readings: list[tuple[list[str], float]] = [(output.text.split(), 0.0)]
        if isinstance(decoder, PrefixBeamDecoder):
            readings = [
                (self._tokenizer.decode(reading.tokens).split(), reading.score)
                for reading in decoder.hypotheses(decoder.second_beam)
            ]
        heard = self._geometry.encoder_frames(output.decoded_samples)
        last = output.token_frames[-1] if output.token_frames else 0
        return stabilities(readings, heard - 1 - last, _EXPONENTS[request.decoding.search])

    def final(
        self,
        request: Request,
        decoder: Decoder,
        decoded_samples: int,
        sounds: Sounds | None = None,
    ) -> RequestOutput:
        """The result, without the tokens emitted at or after `request.keep_samples`."""
        reading = _Reading(decoder.tokens, decoder.token_frames, decoder.scores)
        nbest: tuple[Alternative, ...] = ()
        near_tie = decoder.near_tie if isinstance(decoder, GreedyDecoder) else False
        if isinstance(decoder, PrefixBeamDecoder):
            ranked = decoder.ranked(self._geometry.encoder_frames(decoded_samples))
            reading = _Reading(ranked[0].tokens, ranked[0].token_frames, ranked[0].scores)
            near_tie = is_near_tie([hypothesis.score for hypothesis in ranked[:2]])
            if request.decoding.n_best > 1:
                nbest = self._alternatives(request, ranked, decoded_samples, sounds)
        kept = self._kept(request, reading)
        output = self._write(request, kept, decoded_samples, sounds, "stop", nbest)
        return replace(output, near_tie=True) if near_tie else output

    def failed(
        self,
        request: Request,
        stage: ErrorStage,
        decoder: Decoder | None = None,
        decoded_samples: int = 0,
    ) -> RequestOutput:
        """The terminal output of a request whose `stage` failed, with the tokens found so far."""
        tokens = decoder.tokens if decoder else []
        return RequestOutput(
            request.request_id,
            text=self._tokenizer.decode(tokens),
            tokens=tuple(tokens),
            token_frames=tuple(decoder.token_frames if decoder else ()),
            scores=tuple(decoder.scores if decoder else ()),
            finished=True,
            finish_reason="error",
            error_stage=stage.value,
            decoded_samples=decoded_samples,
        )

    def _kept(self, request: Request, reading: _Reading) -> _Reading:
        if request.keep_samples is None:
            return reading
        kept = sum(
            frame * self._samples_per_frame < request.keep_samples for frame in reading.frames
        )
        return _Reading(reading.tokens[:kept], reading.frames[:kept], reading.scores[:kept])

    def _write(
        self,
        request: Request,
        reading: _Reading,
        decoded_samples: int,
        sounds: Sounds | None,
        reason: FinishReason | None,
        nbest: tuple[Alternative, ...] = (),
    ) -> RequestOutput:
        return RequestOutput(
            request.request_id,
            text=self._tokenizer.decode(reading.tokens),
            tokens=tuple(reading.tokens),
            token_frames=tuple(reading.frames),
            scores=tuple(reading.scores),
            finished=reason is not None,
            finish_reason=reason,
            decoded_samples=decoded_samples,
            confidence=self._confidence(request, reading),
            words=self._words(request, reading, decoded_samples, sounds),
            nbest=nbest,
        )

    def _alternatives(
        self,
        request: Request,
        ranked: Sequence[Hypothesis],
        decoded_samples: int,
        sounds: Sounds | None,
    ) -> tuple[Alternative, ...]:
        """The best reading of each text, at most `n_best` of them."""
        found: dict[str, Alternative] = {}
        for hypothesis in ranked:
            whole = _Reading(hypothesis.tokens, hypothesis.token_frames, hypothesis.scores)
            reading = self._kept(request, whole)
            text = self._tokenizer.decode(reading.tokens)
            if text in found:
                continue
            found[text] = Alternative(
                text,
                tuple(reading.tokens),
                hypothesis.score,
                self._confidence(request, reading),
                self._words(request, reading, decoded_samples, sounds),
            )
            if len(found) == request.decoding.n_best:
                break
        return tuple(found.values())

    def _confidence(self, request: Request, reading: _Reading) -> float | None:
        return confidence(reading.scores) if request.decoding.confidences else None

    def _words(
        self, request: Request, reading: _Reading, decoded_samples: int, sounds: Sounds | None
    ) -> tuple[Word, ...]:
        if not request.decoding.word_times:
            return ()
        end_sample = decoded_samples if request.keep_samples is None else request.keep_samples
        words = words_of(self._tokenizer, *reading, self._samples_per_frame, end_sample, sounds)
        if request.decoding.confidences:
            return tuple(words)
        return tuple(Word(w.text, w.start_sample, w.end_sample) for w in words)
