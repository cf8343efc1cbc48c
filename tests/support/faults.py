"""Faults that hit chosen requests of an engine at a chosen stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oasr.engine.engine import ASREngine
from oasr.engine.request import Request

ERRORS = (
    ValueError("bad"),
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes"),
)

# Where a fault is: the `error_stage` that the engine has to name.
STAGES = {
    "opening": "decode",
    "audio": "input",
    "features": "features",
    "cache": "cache",  # of streams alone
    "forward": "forward",
    "nan": "forward",
    "search": "decode",
    "final": "decode",
}
SPOILT = np.float32(0.515625)  # a sample that fails the features of a request


class Faults:
    """Makes an engine fail at `stages[request_id]` for that request, each time.

    Where the engine's parts are handed many requests at once, a stream is known by its slot, an
    utterance by its length, which must be its own.
    """

    def __init__(self, engine: ASREngine, error: Exception) -> None:
        self.stages: dict[str, str] = {}
        self._engine = engine
        self._error = error
        self._broken: list[Any] = []  # decoders
        self._frames: dict[int, str] = {}  # of utterances
        family = engine._family
        runner, streaming, offline = family.runner, family.streams.executor, family.offline  # type: ignore[attr-defined]
        self._allocate, runner.allocate_stream = runner.allocate_stream, self._allocate_stream  # type: ignore[method-assign]
        self._due, streaming._windows_due = streaming._windows_due, self._windows_due  # type: ignore[method-assign]
        self._pad, offline._padded = offline._padded, self._padded  # type: ignore[method-assign]
        self._decoder, offline._decoder = offline._decoder, self._offline_decoder  # type: ignore[method-assign]
        inputs = streaming._inputs
        self._features, inputs._features = inputs._features, self._faulty_features  # type: ignore[method-assign]
        self._enter, runner.caches._enter = runner.caches._enter, self._faulty_enter  # type: ignore[method-assign]
        self._windows, runner.decode_windows = runner.decode_windows, self._decode_windows  # type: ignore[method-assign]
        self._utterances, runner.decode_utterances = (
            runner.decode_utterances,
            self._decode_utterances,
        )  # type: ignore[method-assign]
        self._advance, runner.search.advance = runner.search.advance, self._faulty_advance  # type: ignore[method-assign]
        self._final, family.outputs.final = family.outputs.final, self._faulty_final  # type: ignore[method-assign]

    def spoil(self, request_id: str, stage: str, audio: NDArray[np.float32]) -> None:
        """The request of this id is going to fail, whose audio (not empty) is changed for that."""
        self.stages[request_id] = stage
        if stage == "features":
            audio[::400] = SPOILT

    def _check(self, request: Request, stage: str) -> None:
        if self.stages.get(request.request_id) == stage:
            raise self._error

    def _running(self, stage: str) -> list[Request]:
        return [
            request
            for request in self._engine._scheduler.running_streams
            if self.stages.get(request.request_id) == stage and request.stream_context is not None
        ]

    def _allocate_stream(self, request: Request) -> None:
        self._check(request, "opening")
        self._allocate(request)
        if self.stages.get(request.request_id) == "search":
            self._broken.append(request.stream_context.decoder)

    def _windows_due(self, request: Request) -> int:
        self._check(request, "audio")
        return self._due(request)

    def _padded(self, audio: Any) -> Any:
        for request in self._engine._in_flight.values():
            if request.audio is audio:
                self._check(request, "audio")
                padded = self._pad(audio)
                self._frames[1 + (len(padded) - 400) // 160] = request.request_id
                return padded
        raise AssertionError("an utterance that is not in flight")

    def _offline_decoder(self, request: Request) -> Any:
        if self.stages.get(request.request_id) == "opening":
            return None
        decoder = self._decoder(request)
        if self.stages.get(request.request_id) == "search":
            self._broken.append(decoder)
        return decoder

    def _faulty_features(self, call: Sequence[tuple[int, Any]]) -> Any:
        if any((piece == SPOILT).any() for _, piece in call):
            raise self._error
        return self._features(call)

    def _faulty_enter(self, cache: Any) -> bool:
        if any(request.stream_context.cache is cache for request in self._running("cache")):
            raise self._error
        return self._enter(cache)

    def _decode_windows(self, rows: Sequence[Any]) -> Any:
        stages = {
            request.stream_context.cache.slot: stage
            for stage in ("forward", "nan")
            for request in self._running(stage)
        }
        return self._windows(self._spoilt(rows, [stages.get(row.slot) for row in rows]))

    def _decode_utterances(self, rows: Sequence[Any]) -> Any:
        names = [self._frames[len(row.features)] for row in rows]
        return self._utterances(self._spoilt(rows, [self.stages.get(name) for name in names]))

    def _spoilt(self, rows: Sequence[Any], stages: Sequence[str | None]) -> list[Any]:
        if "forward" in stages:
            raise self._error
        return [
            row._replace(features=row.features * float("nan")) if stage == "nan" else row
            for row, stage in zip(rows, stages, strict=True)
        ]

    def _faulty_advance(self, rows: Sequence[Any]) -> Any:
        return self._advance(
            [
                row._replace(posteriors=None)
                if any(row.decoder is decoder for decoder in self._broken)
                else row
                for row in rows
            ]
        )

    def _faulty_final(self, request: Request, *rest: Any) -> Any:
        self._check(request, "final")
        return self._final(request, *rest)
