"""Decodes the running streams: all audio that is there, one window of each at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from oasr.cache.parking import Room
from oasr.engine.input_processor import FRAMES_PER_CALL, InputProcessor, Samples
from oasr.engine.isolation import ErrorStage, failed_output, run_alone, run_isolated
from oasr.engine.model_runner import ModelRunner, WindowInput
from oasr.engine.output_processor import OutputProcessor
from oasr.engine.request import Request, RequestOutput
from oasr.engine.search import Posteriors, SearchInput
from oasr.engine.stats import StepStats
from oasr.engine.stream_context import StreamContext

logger = logging.getLogger(__name__)


class StreamingExecutor:
    """Rounds of one window for every stream that has a full one, until none has.

    Which windows a stream has, and what it says after each, depends on its audio alone:
    not on how that came in, and not on the other streams.
    """

    def __init__(
        self,
        runner: ModelRunner,
        inputs: InputProcessor,
        outputs: OutputProcessor,
        max_chunks_per_step: int | None,
    ) -> None:
        self._runner = runner
        self._geometry = runner.geometry
        self._inputs = inputs
        self._outputs = outputs
        self._max_windows = max_chunks_per_step

    def has_work(self, request: Request) -> bool:
        """True when a step would decode a window of the stream, or end it."""
        context: StreamContext | None = request.stream_context
        if request.audio_final:
            return True
        samples, windows = (context.real_samples, context.windows) if context else (0, 0)
        return self._geometry.full_windows(samples + request.queued_samples) > windows

    def run(self, running: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """Outputs of the streams, in the order in which they came to be.

        A stream says something new at most once a window, and its last word once it ended.
        The caller frees the caches of those that are finished.
        """
        outputs: list[RequestOutput] = []
        # Where memory is short the first ones go on: better classes, then longer admitted ones.
        running = sorted(running, key=attrgetter("priority"))
        due: dict[str, int] = {}
        for request in running:
            windows = run_alone(ErrorStage.INPUT, self._windows_due, request)
            due[request.request_id] = windows or 0
            if windows is None:
                outputs.append(self._failed(request, ErrorStage.INPUT))
        stats.streams = sum(windows > 0 for windows in due.values())
        while batch := [r for r in running if due[r.request_id]]:
            for request, output in self._round(batch, due, stats):
                if output is not None:
                    outputs.append(output)
                    if output.finished:
                        due[request.request_id] = 0
        failed = {output.request_id for output in outputs if output.finished}
        for request in running:
            if request.request_id not in failed and self._is_complete(request):
                outputs.append(self._end(request))
        return outputs

    def _windows_due(self, request: Request) -> int:
        """Takes the stream's new audio; how many windows to decode in this step."""
        context: StreamContext = request.stream_context
        for samples in request.take_audio():
            context.buffer.push(samples)
            context.real_samples += len(samples)
            if context.loudness is not None:
                context.loudness.push(samples)
        if request.audio_final and not context.padded:
            context.padded = True
            silence = self._geometry.padded_samples(context.real_samples) - context.real_samples
            context.buffer.push(np.zeros(silence, dtype=np.float32))
        due = self._windows_in(request) - context.windows
        return due if self._max_windows is None else min(due, self._max_windows)

    def _windows_in(self, request: Request) -> int:
        samples: int = request.stream_context.real_samples
        if request.audio_final:
            return self._geometry.final_windows(samples)
        return self._geometry.full_windows(samples)

    def _is_complete(self, request: Request) -> bool:
        windows: int = request.stream_context.windows
        return request.audio_final and windows == self._windows_in(request)

    def _round(
        self, batch: Sequence[Request], due: dict[str, int], stats: StepStats
    ) -> list[tuple[Request, RequestOutput | None]]:
        """A window of each stream of `batch`, or as many of each; takes them from `due`."""
        started_s = time.perf_counter()
        windows = self._runner.windows_at_once(
            len(batch), min(due[request.request_id] for request in batch)
        )
        with record_function("features"):
            failures = self._fill_features(batch, due, windows)
        stats.features_s += time.perf_counter() - started_s
        ready = self._with_room([r for r in batch if r.request_id not in failures], failures)
        said: list[tuple[Request, RequestOutput | None]] = [
            (r, self._failed(r, failures[r.request_id])) for r in batch if r.request_id in failures
        ]
        going = [*zip(ready, self._forward(ready, windows, stats), strict=True)]
        for window in range(windows):
            heard: list[tuple[Request, Posteriors]] = []
            for request, found in going:
                due[request.request_id] -= 1
                request.stream_context.windows += 1
                posteriors = found[window] if found else None
                if posteriors is None:
                    said.append((request, self._failed(request, ErrorStage.FORWARD)))
                else:
                    heard.append((request, posteriors))
            news = self._decode(heard)
            said += news
            ended = {request.request_id for request, output in news if output and output.finished}
            alive = {request.request_id for request, _ in heard} - ended
            going = [(request, found) for request, found in going if request.request_id in alive]
        return said

    def _with_room(
        self, batch: Sequence[Request], failures: dict[str, ErrorStage]
    ) -> list[Request]:
        """Those whose caches are in place for a window; the others wait a round or fail."""
        rooms = self._runner.caches.take_room([r.stream_context.cache for r in batch])
        pairs = list(zip(batch, rooms, strict=True))
        failures.update((r.request_id, ErrorStage.CACHE) for r, x in pairs if x is Room.NEVER)
        return [request for request, room in pairs if room is Room.TAKEN]

    def _fill_features(
        self, batch: Sequence[Request], due: dict[str, int], windows: int
    ) -> dict[str, ErrorStage]:
        """Makes sure that each stream has the features of its windows; the streams that failed."""
        wanted_frames = self._geometry.frames_end(windows)
        failures: dict[str, ErrorStage] = {}
        ahead = max(1, FRAMES_PER_CALL // (len(batch) * self._geometry.stride_frames))
        blocks: list[tuple[Request, Samples]] = []
        for request in batch:
            context: StreamContext = request.stream_context
            if context.features is not None and len(context.features) >= wanted_frames:
                continue
            until = context.windows + min(due[request.request_id], max(ahead, windows))
            samples = run_alone(ErrorStage.INPUT, partial(self._take, context), until)
            if samples is not None and np.isfinite(samples).all():
                blocks.append((request, samples))
            else:
                failures[request.request_id] = ErrorStage.INPUT
        found = self._inputs.extract([samples for _, samples in blocks]) if blocks else []
        for (request, _), features in zip(blocks, found, strict=True):
            append = partial(self._append, request.stream_context)
            if features is None or not run_alone(ErrorStage.FEATURES, append, features):
                failures[request.request_id] = ErrorStage.FEATURES
        return failures

    def _take(self, context: StreamContext, windows: int) -> Samples:
        """The samples up to the end of the stream's first `windows` windows."""
        end = self._geometry.frames_end(windows)
        return context.buffer.take(end - context.buffer.first_frame)

    @staticmethod
    def _append(context: StreamContext, features: Tensor) -> bool:
        kept = context.features
        context.features = features if kept is None else torch.cat([kept, features])
        return True

    def _forward(
        self, ready: Sequence[Request], windows: int, stats: StepStats
    ) -> list[list[Posteriors | None] | None]:
        """What was found in the next `windows` of each stream; None where that raised."""
        if not ready:
            return []
        frames = self._geometry.frames_end(windows)
        started_s = time.perf_counter()
        contexts: list[StreamContext] = [r.stream_context for r in ready]
        rows = [
            WindowInput(
                r.stream_context.cache.slot,
                r.stream_context.features[:frames],
                self._runner.search.top(r.decoding),
            )
            for r in ready
        ]
        with record_function("forward"):
            found = run_isolated(ErrorStage.FORWARD, self._runner.decode_windows, rows)
        for context in contexts:
            if context.features is not None:
                context.features = context.features[windows * self._geometry.stride_frames :]
        stats.forwards += 1
        stats.windows += windows * len(ready)
        stats.forward_s += time.perf_counter() - started_s
        return found

    def _decode(
        self, heard: Sequence[tuple[Request, Posteriors]]
    ) -> list[tuple[Request, RequestOutput | None]]:
        """What each stream says after this window, where that is news."""
        rows = []
        for request, posteriors in heard:
            context: StreamContext = request.stream_context
            first_frame = (context.windows - 1) * self._geometry.chunk_size
            rows.append(SearchInput(context.decoder, posteriors, first_frame))
        with record_function("decode"):
            changed = self._runner.search.advance(rows)
            return [
                (request, self._say(request, is_new))
                for (request, _), is_new in zip(heard, changed, strict=True)
            ]

    def _say(self, request: Request, is_new: bool | None) -> RequestOutput | None:
        context: StreamContext = request.stream_context
        if is_new is None:
            return failed_output(request, ErrorStage.DECODE)
        if not is_new or self._geometry.samples_end(context.windows) > context.real_samples:
            return None  # the words of the final silence come with the last output
        try:
            text = self._outputs.text(context.decoder)
            if text == context.text:
                return None
            context.text = text
            decoded = context.decoded_samples(self._geometry)
            sounds = context.sounds(decoded)
            return self._outputs.partial(request, context.decoder, decoded, sounds)
        except Exception:
            logger.exception("%s failed for one stream", ErrorStage.DECODE)
            return failed_output(request, ErrorStage.DECODE)

    def _end(self, request: Request) -> RequestOutput:
        context: StreamContext = request.stream_context
        samples = context.real_samples
        try:
            return self._outputs.final(request, context.decoder, samples, context.sounds(samples))
        except Exception:
            logger.exception("%s failed for one stream", ErrorStage.DECODE)
            return self._failed(request, ErrorStage.DECODE)

    def _failed(self, request: Request, stage: ErrorStage) -> RequestOutput:
        """The terminal output with what was found so far, as far as that can be told."""
        context: StreamContext = request.stream_context
        decoded = context.decoded_samples(self._geometry)
        try:
            return self._outputs.failed(request, stage, context.decoder, decoded)
        except Exception:
            logger.exception("%s failed for one stream", ErrorStage.DECODE)
        return failed_output(request, stage, decoded)
