"""Engines for a process that dies: what is loud kills it, what is loud downwards stops it."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oasr.decoding.options import DecodingOptions
from oasr.engine.family import Capabilities
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.models.registry import ModelInfo
from worker.file_reader import Phase
from worker.file_source import FileLimits
from worker.reader_process import Answer, Progress, Sending, Task, limit_memory

Samples = NDArray[np.float32]
DEADLY = 0.9
STOPPING = -0.9


def digest(samples: Samples, keep_samples: int | None = None) -> str:
    """What a `DigestEngine` hears in audio."""
    return hashlib.sha256(samples.tobytes() + str(keep_samples).encode()).hexdigest()[:12]


class DigestEngine:
    """Keeps the engine's contract; the text of a request is a digest of exactly its audio."""

    def __init__(self) -> None:
        self._streams: dict[str, list[Samples]] = {}
        self._outputs: list[RequestOutput] = []

    @property
    def has_work(self) -> bool:
        return bool(self._outputs)

    def add_streaming_request(
        self,
        request_id: str | None = None,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> str:
        del priority, decoding, tenant
        assert request_id is not None
        self._streams[request_id] = []
        return request_id

    def add_request(self, request: Request) -> str:
        assert request.audio is not None
        self._hear(request.audio)
        self._finish(request.request_id, request.audio, None)
        return request.request_id

    def feed_chunk(
        self,
        request_id: str,
        samples: Samples,
        is_last: bool = False,
        keep_samples: int | None = None,
    ) -> None:
        self._streams[request_id].append(samples)
        self._hear(samples)
        heard = np.concatenate(self._streams[request_id])
        if is_last:
            del self._streams[request_id]
            self._finish(request_id, heard, keep_samples)
        else:
            self._outputs.append(
                RequestOutput(request_id, str(len(heard)), decoded_samples=len(heard))
            )

    def abort_request(self, request_id: str) -> bool:
        if self._streams.pop(request_id, None) is None:
            return False
        self._outputs.append(RequestOutput(request_id, finished=True, finish_reason="abort"))
        return True

    def runnable_samples(self) -> dict[str, int]:
        return {}

    def step(self) -> list[RequestOutput]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def _finish(self, request_id: str, heard: Samples, keep_samples: int | None) -> None:
        text = digest(heard, keep_samples)
        self._outputs.append(RequestOutput(request_id, text, finished=True, finish_reason="stop"))

    def _hear(self, samples: Samples) -> None:
        if len(samples) and samples.max() > DEADLY:
            os.kill(os.getpid(), signal.SIGSEGV)
        if len(samples) and samples.min() < STOPPING:
            threading.Event().wait()


class Stillborn(DigestEngine):
    """An engine whose model cannot be loaded."""

    def __init__(self) -> None:
        os._exit(3)


def read_and_die(connection: Any, limits: FileLimits) -> None:
    """Reads a file and dies instead of completing it."""
    _read_and_die(connection, _task(connection), limits)


def _task(connection: Any) -> Task:
    connection.send(Answer.READY)
    task: Task = connection.recv()
    return task


def _read_and_die(connection: Any, task: Task, limits: FileLimits) -> None:
    inbox: list[Any] = []
    reading = Sending(connection, task, limits)
    reading._put = inbox.append  # type: ignore[method-assign]
    reading.read()
    for item in inbox[:-1]:
        connection.send(item)
    os.kill(os.getpid(), signal.SIGSEGV)


def die_once(connection: Any, limits: FileLimits) -> None:
    """The same, but only as long as a mark beside the file is not there."""
    task = _task(connection)
    mark = Path(task.job.file_id)
    if mark.exists():
        Sending(connection, task, limits).read()
    else:
        mark.touch()
        _read_and_die(connection, task, limits)


def hang(*_arguments: Any) -> None:
    """Reads for ever."""
    threading.Event().wait()


def hang_in_the_decoder(connection: Any, limits: FileLimits) -> None:
    """Says that it decodes, and no more."""
    del limits
    _task(connection)
    connection.send(Progress(Phase.DECODING))
    threading.Event().wait()


def decode_slowly(connection: Any, limits: FileLimits) -> None:
    """Makes progress all the time, and no end of it."""
    del limits
    _task(connection)
    while True:
        connection.send(Progress(Phase.DECODING))
        time.sleep(0.05)  # as a decoder that is busy


def fetch_for_ever(connection: Any, limits: FileLimits) -> None:
    """Gets nothing, and says so."""
    del limits
    _task(connection)
    while True:
        connection.send(Progress(Phase.FETCHING))
        time.sleep(0.05)  # as a download that trickles


def take_memory(connection: Any, limits: FileLimits) -> None:
    """Needs more than the machine has."""
    limit_memory(limits.max_memory_bytes)
    task = _task(connection)
    reading = Sending(connection, task, limits)
    reading._decode = lambda _file: iter([bytearray(1 << 31)])  # type: ignore[method-assign]
    reading.read()
    threading.Event().wait()


class DigestModel(DigestEngine):
    """A `DigestEngine` as a model's process has one; it hears what waits in one step."""

    model_info = ModelInfo("digest", "00ff", "cpu", "float32", ("en",))
    capabilities = Capabilities(streaming=False, searches=("greedy",))
    stats = StepStats()
    portable_check = staticmethod(DecodingOptions.check)

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Request] = []

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def add_request(self, request: Request) -> str:
        self._waiting.append(request)
        return request.request_id

    def abort_request(self, request_id: str) -> bool:
        self._waiting = [r for r in self._waiting if r.request_id != request_id]
        return True

    def step(self) -> list[RequestOutput]:
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            super().add_request(request)
        self.stats = StepStats(step_s=0.5, offline_requests=len(waiting))
        return super().step()

    def transcribe(self, utterances: list[Samples]) -> None:
        """Warmed up."""
        del utterances
