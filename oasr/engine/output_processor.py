"""Search state to `RequestOutput`."""

from __future__ import annotations

from typing import Final

from oasr.decoding.ctc_greedy import GreedyDecoder
from oasr.decoding.tokenizer import Tokenizer
from oasr.engine.isolation import ErrorStage
from oasr.engine.request import FinishReason, Request, RequestOutput

SAMPLES_PER_FEATURE_FRAME: Final = 160


class OutputProcessor:
    """Writes outputs; knows the tokenizer and how long an encoder frame is."""

    def __init__(self, tokenizer: Tokenizer, subsampling_rate: int) -> None:
        self._tokenizer = tokenizer
        self._samples_per_frame = subsampling_rate * SAMPLES_PER_FEATURE_FRAME

    def text(self, decoder: GreedyDecoder) -> str:
        return self._tokenizer.decode(decoder.tokens)

    def partial(
        self, request: Request, decoder: GreedyDecoder, decoded_samples: int
    ) -> RequestOutput:
        """What a stream says so far; all its tokens."""
        return self._write(request, decoder, len(decoder.tokens), decoded_samples, None)

    def final(
        self, request: Request, decoder: GreedyDecoder, decoded_samples: int
    ) -> RequestOutput:
        """The result, without the tokens emitted at or after `request.keep_samples`."""
        kept = len(decoder.tokens)
        if request.keep_samples is not None:
            kept = sum(
                frame * self._samples_per_frame < request.keep_samples
                for frame in decoder.token_frames
            )
        return self._write(request, decoder, kept, decoded_samples, "stop")

    def failed(
        self,
        request: Request,
        stage: ErrorStage,
        decoder: GreedyDecoder | None = None,
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

    def aborted(self, request: Request, decoded_samples: int = 0) -> RequestOutput:
        """The terminal output of an aborted request."""
        return RequestOutput(
            request.request_id,
            finished=True,
            finish_reason="abort",
            decoded_samples=decoded_samples,
        )

    def _write(
        self,
        request: Request,
        decoder: GreedyDecoder,
        kept: int,
        decoded_samples: int,
        reason: FinishReason | None,
    ) -> RequestOutput:
        return RequestOutput(
            request.request_id,
            text=self._tokenizer.decode(decoder.tokens[:kept]),
            tokens=tuple(decoder.tokens[:kept]),
            token_frames=tuple(decoder.token_frames[:kept]),
            scores=tuple(decoder.scores[:kept]),
            finished=reason is not None,
            finish_reason=reason,
            decoded_samples=decoded_samples,
        )
