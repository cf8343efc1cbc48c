"""One utterance on its way through the engine, and what comes back for it."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from oasr.decoding.options import DecodingOptions
from oasr.decoding.words import Word
from oasr.errors import IllegalTransition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

FRAME_LENGTH_MS: Final = 25
FRAME_SHIFT_MS: Final = 10

FinishReason = Literal["stop", "error", "abort"]


class RequestState(StrEnum):
    """Where a request is; `EDGES` says where it may go."""

    WAITING = "waiting"  # in a waiting queue
    RUNNING = "running"  # holds a stream slot, or is part of an offline batch
    PARKED = "parked"  # a stream that gave its slot back until it has something to decode
    FINISHED = "finished"
    ABORTED = "aborted"


EDGES: Final[Mapping[RequestState, frozenset[RequestState]]] = MappingProxyType(
    {
        RequestState.WAITING: frozenset({RequestState.RUNNING, RequestState.ABORTED}),
        RequestState.RUNNING: frozenset(
            {RequestState.FINISHED, RequestState.ABORTED, RequestState.PARKED}
        ),
        RequestState.PARKED: frozenset({RequestState.WAITING, RequestState.ABORTED}),
        RequestState.FINISHED: frozenset(),
        RequestState.ABORTED: frozenset(),
    }
)


def count_frames(num_samples: int, sample_rate: int = 16000) -> int:
    """Feature frames of `num_samples`: 25 ms windows every 10 ms, whole windows only."""
    length = sample_rate * FRAME_LENGTH_MS // 1000
    shift = sample_rate * FRAME_SHIFT_MS // 1000
    return 1 + (num_samples - length) // shift if num_samples >= length else 0


class Request:
    """One utterance: its audio, its place in the schedule and its state.

    `audio` is 1-D float32 at `sample_rate`; offline requests have all of it from the start,
    streams get it by `push_audio`. A smaller `priority` is sooner; 0, the most urgent, is the
    least there is. Requests of one `tenant` share what is due to it. ValueError for an offline
    request without audio or a stream with it.
    """

    __slots__ = (
        "_clock",
        "_priority",
        "_state",
        "arrival_time",
        "audio",
        "audio_chunks",
        "audio_final",
        "decoding",
        "keep_samples",
        "num_frames",
        "queued_samples",
        "request_id",
        "sample_rate",
        "stream_context",
        "stream_id",
        "streaming",
        "tenant",
    )

    def __init__(
        self,
        audio: Samples | None = None,
        request_id: str | None = None,
        streaming: bool = False,
        sample_rate: int = 16000,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if streaming == (audio is not None):
            raise ValueError("an offline request needs its audio, a stream is fed by push_audio")
        self.audio = audio
        self.request_id = uuid.uuid4().hex if request_id is None else request_id
        self.streaming = streaming
        self.decoding = DecodingOptions() if decoding is None else decoding
        self.sample_rate = sample_rate
        self.tenant = ""  # whoever queues it may say; before it is queued
        self.arrival_time = clock()  # seconds of `clock`
        self.stream_id: int | None = None  # given at admission
        self.stream_context: Any = None  # the engine's decode state of a running stream
        self.audio_chunks: deque[Samples] = deque()  # pushed and not yet taken
        self.audio_final = False  # no more audio will come
        self.keep_samples: int | None = None  # tokens emitted from here on are dropped
        self.queued_samples = 0  # samples in `audio_chunks`
        self._clock = clock
        self._priority = max(0, priority)
        self._state = RequestState.WAITING
        # Cost in feature frames: exact offline, for a stream what is queued so far.
        self.num_frames = 0 if audio is None else count_frames(len(audio), sample_rate)

    @property
    def state(self) -> RequestState:
        return self._state

    @property
    def priority(self) -> int:
        return self._priority

    @property
    def waited_for(self) -> float:
        """Seconds since the request arrived."""
        return self._clock() - self.arrival_time

    @property
    def has_pending_audio(self) -> bool:
        """True while pushed audio has not been taken."""
        return bool(self.audio_chunks)

    def move_to(self, state: RequestState) -> None:
        """Change the state; IllegalTransition where `EDGES` has no such edge."""
        if state not in EDGES[self._state]:
            raise IllegalTransition(
                f"request {self.request_id}: {self._state.value} -> {state.value}"
            )
        self._state = state

    def push_audio(self, samples: Samples, is_last: bool = False) -> None:
        """Queue a stream's next samples; ValueError for offline requests and after the last."""
        if not self.streaming:
            raise ValueError(f"request {self.request_id} is offline: it has all its audio")
        if self.audio_final:
            raise ValueError(f"request {self.request_id} has had its last chunk")
        if len(samples):
            self.audio_chunks.append(samples)
            self._count_queued(self.queued_samples + len(samples))
        self.audio_final = is_last

    def take_audio(self) -> list[Samples]:
        """Hand over every queued chunk, oldest first."""
        chunks = list(self.audio_chunks)
        self.audio_chunks.clear()
        self._count_queued(0)
        return chunks

    def _count_queued(self, num_samples: int) -> None:
        self.queued_samples = num_samples
        self.num_frames = count_frames(num_samples, self.sample_rate)

    def __repr__(self) -> str:
        kind = "stream" if self.streaming else "offline"
        return f"<Request {self.request_id} {kind} {self._state.value} p{self._priority}>"


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the readings of an utterance; `score` is its log probability and what hotwords add."""

    text: str
    tokens: tuple[int, ...]
    score: float
    confidence: float | None = None
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """How far a reading of a model that may invent or leave out text is to be believed.

    None: nothing was read, as nobody speaks.
    """

    voiced_ms: int  # how much of the audio is voice
    coverage: float | None = None  # how much of the stretch with voice the text spans, 0 to 1
    no_speech: float | None = None  # the model's own doubt that anybody speaks
    log_prob: float | None = None  # mean over the tokens
    compression: float | None = None  # of the text when it is packed; 1 at the least repetition
    temperature: float | None = None  # at which it was read; above 0 the first reading failed
    language: str | None = None  # in which it was read, as the model calls it
    language_probability: float | None = None  # where the model was to find it out


@dataclass(frozen=True, slots=True)
class Stretch:
    """A sentence or so, as its model parts an utterance; samples since the first of it."""

    text: str
    start_sample: int
    end_sample: int
    words: tuple[Word, ...] = ()
    confidence: float | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What one step found for one request; exactly one output of a request is finished.

    `token_frames` are encoder frames since the request's first sample, 160 · s samples each with
    s-fold subsampling (640 with the usual 4), `scores` the log posterior of each token at its
    frame. What the request's `decoding` does not ask for, and what is not known, is None or empty.
    """

    request_id: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    token_frames: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    finished: bool = False
    finish_reason: FinishReason | None = None
    error_stage: str | None = None  # which part failed, where finish_reason is "error"
    decoded_samples: int = 0  # real samples at 16 kHz that have been decoded
    confidence: float | None = None  # mean posterior of the tokens, in (0, 1]
    words: tuple[Word, ...] = ()  # joined by blanks they are `text`
    nbest: tuple[Alternative, ...] = ()  # of the last output: different texts, the best first
    evidence: Evidence | None = None
    stretches: tuple[Stretch, ...] = ()  # in order; joined by blanks they are `text`
    near_tie: bool = False  # of the last output: another batch shape might have read it otherwise
    stability: tuple[float, ...] = ()  # of each word of a partial: that the text up to it stays
