"""File jobs under test: small WAVs, a recognizer that answers on demand, a pool without threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from oasr.audio.segmenter import SegmenterConfig
from oasr.decoding.options import DecodingOptions
from oasr.engine.request import RequestOutput
from tests.support.lanes import Clock
from tests.support.partitions import Counts, Outbox, header
from tests.support.signals import Int16Array
from tests.support.wav import PCM, chunk, fmt, riff
from worker.cloudevents import Identity, ModelName
from worker.codec import FileJob
from worker.engine_process import CRASHED
from worker.file_reader import Reading
from worker.file_run import FileTools
from worker.file_source import FileLimits
from worker.messages import Kind, OutRecord, RawMessage


def wav(*channels: Int16Array, rate: int = 8000) -> bytes:
    """A WAV of 16-bit PCM."""
    data = np.stack(channels, axis=1).astype("<i2").tobytes()
    return riff(fmt(PCM, len(channels), rate, 16), chunk(b"data", data))


def inline(offset: int, value: bytes | None, key: bytes | None = b"f", **more: str) -> RawMessage:
    """A message of the file topic whose value is the recording."""
    headers = {"content-type": "audio/wav", **more}
    pairs = tuple((name, text.encode()) for name, text in headers.items())
    return RawMessage("files", 0, offset, 1000, key, value, pairs)


class InlinePool:
    """Runs what it is given at once."""

    def __init__(self, workers: int, thread_name_prefix: str) -> None:
        del workers, thread_name_prefix
        self.shut_down = False

    def submit(self, call: Callable[[], None]) -> None:
        call()

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        self.shut_down = wait and cancel_futures


class ThreadReaders:
    """Files are read by whoever runs the reading."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits

    def reading(self, job: FileJob, endpointing: SegmenterConfig) -> Reading:
        return Reading(job, self._limits, endpointing)

    def close(self) -> None:
        """There is nothing to end."""


class FakeRecognizer:
    """Keeps windows until the test answers them, in any order."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[Any, Callable[[RequestOutput], None]]] = {}
        self.dropped: list[str] = []
        self.priorities: list[int] = []
        self.decodings: list[DecodingOptions] = []
        self.tenants: list[str] = []
        self._count = 0

    def transcribe(
        self,
        audio: Any,
        priority: int,
        decoding: DecodingOptions,
        receiver: Callable[[RequestOutput], None],
        tenant: str = "",
    ) -> str:
        self._count += 1
        self.priorities.append(priority)
        self.decodings.append(decoding)
        self.tenants.append(tenant)
        self.waiting[str(self._count)] = (audio, receiver)
        return str(self._count)

    def drop(self, request_id: str) -> None:
        self.waiting.pop(request_id, None)
        self.dropped.append(request_id)

    def answer(self, request_id: str, text: str | None = None, reason: Any = "stop") -> None:
        audio, receiver = self.waiting.pop(request_id)
        said = f"{len(audio)} samples" if text is None else text
        receiver(RequestOutput(request_id, said, finished=True, finish_reason=reason))

    def crash(self, request_id: str) -> None:
        """Say that a window killed its process again and again."""
        _, receiver = self.waiting.pop(request_id)
        receiver(
            RequestOutput(request_id, finished=True, finish_reason="error", error_stage=CRASHED)
        )

    def answer_all(self) -> None:
        for request_id in list(self.waiting):
            self.answer(request_id)


class FileBench:
    """What file jobs share."""

    def __init__(self, emit_empty: bool = False, answering: bool = True) -> None:
        self.recognizer = FakeRecognizer()
        self.apart = FakeRecognizer()  # in a process of its own
        self.outbox = Outbox(answering)
        self.counts = Counts()
        self.clock = Clock()
        self.tools = FileTools(
            recognizer=self.recognizer,  # type: ignore[arg-type]
            identity=Identity("g", ModelName("m", "d")),
            send=self.outbox.send,
            counters=self.counts,
            now_ms=lambda: 4000,
            emit_empty=emit_empty,
        )

    def of(self, kind: Kind) -> list[OutRecord]:
        return [record for record in self.outbox.sent if record.kind is kind]

    def finals(self) -> list[dict[str, Any]]:
        return [orjson.loads(record.value) for record in self.of(Kind.FINAL)]

    def completed(self) -> list[dict[str, Any]]:
        return [orjson.loads(record.value) for record in self.of(Kind.EVENT)]

    def codes(self) -> list[str]:
        return [header(record, "error.code") for record in self.of(Kind.DEAD_LETTER)]
