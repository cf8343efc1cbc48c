"""Decodes a batch of whole utterances."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from torch import Tensor
from torch.profiler import record_function

from oasr.decoding.loudness import LoudnessTrack
from oasr.engine.geometry import WindowGeometry
from oasr.engine.input_processor import InputProcessor, Samples
from oasr.engine.isolation import ErrorStage, failed_output, run_alone, run_isolated
from oasr.engine.model_runner import ModelRunner, UtteranceInput
from oasr.engine.output_processor import OutputProcessor
from oasr.engine.request import Request, RequestOutput
from oasr.engine.search import Decoder, Posteriors, SearchInput
from oasr.engine.stats import StepStats


class OfflineExecutor:
    """Features, one forward and search of a batch, each request with its own fate."""

    def __init__(
        self,
        runner: ModelRunner,
        inputs: InputProcessor,
        outputs: OutputProcessor,
    ) -> None:
        self._runner = runner
        self._geometry: WindowGeometry = runner.geometry
        self._inputs = inputs
        self._outputs = outputs

    def run(self, batch: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """One terminal output a request, in the order of `batch`."""
        found: dict[str, RequestOutput] = {}
        features = self._features(batch, found, stats)
        started_s = time.perf_counter()
        with record_function("forward"):
            posteriors = (
                run_isolated(
                    ErrorStage.FORWARD,
                    self._runner.decode_utterances,
                    [UtteranceInput(f, self._runner.search.top(r.decoding)) for r, f in features],
                )
                if features
                else []
            )
        stats.forward_s += time.perf_counter() - started_s
        stats.forwards += bool(features)
        stats.offline_requests += len(batch)
        lengths = [len(rows) for _, rows in features]
        stats.offline_frames += sum(lengths)
        stats.offline_padded_frames += max(lengths, default=0) * len(lengths)
        self._decode([request for request, _ in features], posteriors, found)
        return [found[request.request_id] for request in batch]

    def _features(
        self, batch: Sequence[Request], found: dict[str, RequestOutput], stats: StepStats
    ) -> list[tuple[Request, Tensor]]:
        """Features of those that have any; the others' outputs go to `found`."""
        blocks: list[tuple[Request, Samples]] = []
        for request in batch:
            audio = request.audio
            assert audio is not None  # an offline request has its audio from the start
            if not len(audio):
                found[request.request_id] = self._final(request, self._decoder(request))
                continue
            is_finite = bool(np.isfinite(audio).all())
            samples = run_alone(ErrorStage.INPUT, self._padded, audio) if is_finite else None
            if samples is None:
                found[request.request_id] = failed_output(request, ErrorStage.INPUT)
            else:
                blocks.append((request, samples))
        started_s = time.perf_counter()
        with record_function("features"):
            extracted = self._inputs.extract([samples for _, samples in blocks])
        stats.features_s += time.perf_counter() - started_s
        ready: list[tuple[Request, Tensor]] = []
        for (request, _), features in zip(blocks, extracted, strict=True):
            if features is None:
                found[request.request_id] = failed_output(request, ErrorStage.FEATURES)
            else:
                ready.append((request, features))
        return ready

    def _padded(self, audio: Samples) -> Samples:
        """The silence that a stream of the same audio would end with."""
        return np.pad(audio, (0, self._geometry.padded_samples(len(audio)) - len(audio)))

    def _decode(
        self,
        requests: Sequence[Request],
        posteriors: Sequence[Posteriors | None],
        found: dict[str, RequestOutput],
    ) -> None:
        """Adds the outputs of `requests` to `found`."""
        heard: list[tuple[Request, SearchInput]] = []
        for request, posterior in zip(requests, posteriors, strict=True):
            decoder = self._decoder(request)
            if posterior is None:
                found[request.request_id] = failed_output(request, ErrorStage.FORWARD)
            elif decoder is None:
                found[request.request_id] = failed_output(request, ErrorStage.DECODE)
            else:
                heard.append((request, SearchInput(decoder, posterior, 0)))
        with record_function("decode"):
            changed = self._runner.search.advance([row for _, row in heard])
            for (request, row), is_new in zip(heard, changed, strict=True):
                decoder = None if is_new is None else row.decoder
                found[request.request_id] = self._final(request, decoder)

    def _final(self, request: Request, decoder: Decoder | None) -> RequestOutput:
        """The result; without a `decoder` the search has failed."""
        write = partial(self._write, request)
        output = None if decoder is None else run_alone(ErrorStage.DECODE, write, decoder)
        return failed_output(request, ErrorStage.DECODE) if output is None else output

    def _write(self, request: Request, decoder: Decoder) -> RequestOutput:
        audio = request.audio
        assert audio is not None  # an offline request has its audio from the start
        sounds = None
        if request.decoding.word_times:
            loudness = LoudnessTrack()
            loudness.push(audio)
            sounds = loudness.sounds(len(audio))
        return self._outputs.final(request, decoder, len(audio), sounds)

    def _decoder(self, request: Request) -> Decoder | None:
        return run_alone(ErrorStage.DECODE, self._runner.search.decoder, request.decoding)
