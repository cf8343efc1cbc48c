"""A worker whose engine hears a word in every window, at once or at a given speed.

Everything but the model is as in `oasr-worker run`: settings from the environment, clients, codec,
sessions, gate, resampler, tracker, maps, commits, metrics. `DEAF_AUDIO_S_PER_S` in the environment
limits the seconds of audio that the engine takes a second.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

import worker.run
from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.models.registry import ModelInfo
from worker.engine_process import SpawnedChild
from worker.isolated_engine import IsolatedEngine
from worker.loading import ChildDeaths, Loaded, LoadedModels
from worker.metrics import Metrics
from worker.models import MARK
from worker.recognizers import Recognizers
from worker.settings import Settings, load

RATE = 16_000
WINDOW_SAMPLES = 10_240  # what the bundled model decodes at once
BUSY_S = 0.002  # of a step that may not decode yet
LATE_S = 0.05  # that a step can make up for


class Stream:
    """What a stream was fed, and how much of it is decoded."""

    def __init__(self) -> None:
        self.audio: list[NDArray[np.float32]] = []  # kept as an engine keeps it
        self.waiting = self.decoded = 0
        self.ended = False

    @property
    def runnable(self) -> bool:
        return self.ended or self.waiting >= WINDOW_SAMPLES

    def decode(self) -> None:
        """Everything, or all whole windows."""
        left = 0 if self.ended else self.waiting % WINDOW_SAMPLES
        self.decoded += self.waiting - left
        self.waiting = left
        self.audio = self.audio[-1:] if left else []


class DeafEngine:
    """Streams in the order in which they can be decoded."""

    def __init__(self, audio_s_per_s: float | None = None) -> None:
        self.stats = StepStats()
        self.model_info = ModelInfo("deaf", "0" * 16, "cpu", "float32", ())
        self._streams: dict[str, Stream] = {}
        self._runnable: dict[str, None] = {}
        self._samples_per_s = None if audio_s_per_s is None else audio_s_per_s * RATE
        self._free_at = 0.0  # when the last step's audio would be decoded

    @property
    def has_work(self) -> bool:
        return bool(self._runnable)

    def check_decoding(self, options: DecodingOptions, streaming: bool = True) -> None:
        """Everything can be asked for."""

    def add_streaming_request(
        self,
        request_id: str | None = None,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> str:
        del priority, decoding, tenant
        assert request_id is not None
        self._streams[request_id] = Stream()
        return request_id

    def add_request(self, request: Request) -> str:
        raise NotImplementedError(f"{request.request_id}: there are no files here")

    def feed_chunk(
        self,
        request_id: str,
        samples: NDArray[np.float32],
        is_last: bool = False,
        keep_samples: int | None = None,
    ) -> None:
        del keep_samples
        stream = self._streams[request_id]
        stream.audio.append(samples)
        stream.waiting += len(samples)
        stream.ended = is_last
        if stream.runnable:
            self._runnable[request_id] = None

    def abort_request(self, request_id: str) -> bool:
        self._runnable.pop(request_id, None)
        return self._streams.pop(request_id, None) is not None

    def runnable_samples(self) -> dict[str, int]:
        return {request_id: self._streams[request_id].waiting for request_id in self._runnable}

    def step(self) -> list[RequestOutput]:
        ids = list(self._runnable)
        if self._samples_per_s is not None:
            now = time.monotonic()
            if now < self._free_at:
                time.sleep(BUSY_S)
                return []
            ids = ids[:1]
            taken_s = self._streams[ids[0]].waiting / self._samples_per_s
            self._free_at = max(self._free_at, now - LATE_S) + taken_s
        return [self._decoded(request_id) for request_id in ids]

    def _decoded(self, request_id: str) -> RequestOutput:
        stream = self._streams[request_id]
        stream.decode()
        del self._runnable[request_id]
        if stream.ended:
            del self._streams[request_id]
        return RequestOutput(
            request_id,
            text=" ".join(["word"] * (1 + stream.decoded // WINDOW_SAMPLES)),
            finished=stream.ended,
            finish_reason="stop" if stream.ended else None,
            decoded_samples=stream.decoded,
        )


def load_deaf(settings: Settings, metrics: Metrics, deaths: ChildDeaths) -> LoadedModels:
    """In the place of `load_models`: one model, which nothing ever makes run apart."""
    del metrics
    speed = os.environ.get("DEAF_AUDIO_S_PER_S")
    engine = DeafEngine(None if speed is None else float(speed))
    child = IsolatedEngine(no_child, time.monotonic, lambda: deaths.count("engine"))
    name = next(iter(settings.served_models))
    served = Recognizers(engine, child, time.monotonic, name + MARK)  # type: ignore[arg-type]
    loaded = Loaded(engine.model_info, served, lambda _decoding: None, reads_calls=True)
    return LoadedModels({name: loaded}, settings)


def no_child() -> SpawnedChild:
    raise RuntimeError("nothing kills this engine")


if __name__ == "__main__":
    worker.run.load_models = load_deaf
    sys.exit(worker.run.run(load()))
