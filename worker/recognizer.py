"""The engine as segments and file windows see it: requests in, outputs back to who asked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from worker.engine_process import Engine
from worker.segments import MODEL_RATE, Segment
from worker.undecoded import UndecodedAudio

Receiver = Callable[[RequestOutput], None]


class Recognizer:
    """Names requests, steps the engine and hands every output to the one who waits for it."""

    def __init__(self, engine: Engine, now: Callable[[], float], prefix: str = "") -> None:
        """Ids of requests begin with `prefix`."""
        self._engine = engine
        self._prefix = prefix
        self._receivers: dict[str, Receiver] = {}
        self._partitions: dict[str, int] = {}  # of the streams
        self._undecoded = UndecodedAudio()
        self._now = now
        self._count = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""
        return self._engine.has_work

    @property
    def open_requests(self) -> int:
        """Requests that have not had their last output."""
        return len(self._receivers)

    def open(self, segment: Segment, priority: int, partition: int) -> str:
        """Start a stream for a segment."""
        request_id = self._next_id()
        options = segment.info.context.options
        self._engine.add_streaming_request(
            request_id, priority=priority, decoding=options.decoding, tenant=options.tenant
        )
        self._partitions[request_id] = partition
        self._undecoded.opened(request_id)
        self._receivers[request_id] = segment.receive
        return request_id

    def feed(
        self, request_id: str, samples: NDArray[np.float32], keep_samples: int | None, last: bool
    ) -> None:
        """Give a stream its next samples at the model's rate."""
        self._undecoded.fed(request_id, len(samples), self._now())
        if len(samples) or last:
            self._engine.feed_chunk(
                request_id, samples, is_last=last, keep_samples=keep_samples if last else None
            )

    def transcribe(
        self,
        audio: NDArray[np.float32],
        priority: int,
        decoding: DecodingOptions,
        receiver: Receiver,
        tenant: str = "",
    ) -> str:
        """Queue a whole window of a file."""
        request_id = self._next_id()
        request = Request(audio, request_id, priority=priority, decoding=decoding)
        request.tenant = tenant
        self._engine.add_request(request)
        self._receivers[request_id] = receiver
        return request_id

    def drop(self, request_id: str) -> None:
        """Forget a request: whatever the engine still says about it is nobody's."""
        if self._receivers.pop(request_id, None) is not None:
            self._partitions.pop(request_id, None)
            self._undecoded.ended(request_id)
            self._engine.abort_request(request_id)

    def held_s(self) -> dict[int, float]:
        """Seconds of live audio that the engine could decode now, by partition."""
        held: dict[int, float] = {}
        for request_id, samples in self._engine.runnable_samples().items():
            partition = self._partitions.get(request_id)
            if partition is not None:
                held[partition] = held.get(partition, 0.0) + samples / MODEL_RATE
        return held

    def undecoded_age_s(self) -> float:
        """Age of the oldest live audio that waits for the engine; 0 where none does."""
        return self._undecoded.age_s(self._engine.runnable_samples(), self._now())

    def step(self) -> None:
        """One step of the engine."""
        for output in self._engine.step():
            if output.finished:
                receiver = self._receivers.pop(output.request_id, None)
                self._partitions.pop(output.request_id, None)
                self._undecoded.ended(output.request_id)
            else:
                receiver = self._receivers.get(output.request_id)
            if receiver is not None:
                receiver(output)

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"
