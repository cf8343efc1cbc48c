"""One segment on its way through the engine: audio in, partials and one final out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oasr.audio.plausibility import EncodingCheck
from oasr.audio.resample import Resampler
from oasr.audio.segmenter import EndReason
from oasr.engine.request import RequestOutput
from worker.alternatives import stable_part
from worker.engine_process import CRASHED
from worker.errors import ErrorCode
from worker.records import Gap
from worker.streams import MessageContext

MODEL_RATE = 16_000


class SegmentState(Enum):
    """OPEN takes audio; CLOSED has all of it; DECODED has its text; DONE needs nothing more."""

    OPEN = auto()
    CLOSED = auto()
    DECODED = auto()
    DONE = auto()
    DROPPED = auto()


EDGES = {
    SegmentState.OPEN: {SegmentState.CLOSED, SegmentState.DROPPED},
    SegmentState.CLOSED: {SegmentState.DECODED, SegmentState.DROPPED},
    SegmentState.DECODED: {SegmentState.DONE, SegmentState.DROPPED},
    SegmentState.DONE: set(),
    SegmentState.DROPPED: set(),
}


class Speech(Protocol):
    """What a segment needs of the engine; outputs come back to the segment by `receive`."""

    def open(self, segment: Segment, priority: int) -> str: ...

    def feed(
        self, request_id: str, samples: NDArray[np.float32], keep_samples: int | None, last: bool
    ) -> None: ...

    def drop(self, request_id: str) -> None: ...


class Listener(Protocol):
    """Whoever publishes what a segment says."""

    def partial(self, segment: Segment, revision: int) -> None: ...

    def decoded(self, segment: Segment) -> None: ...

    def failed(self, segment: Segment) -> None: ...


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Where a segment lies; samples are on the channel's media clock."""

    channel: int
    index: int
    start_sample: int
    media_rate: int
    context: MessageContext  # of the message that holds the resume sample of its span
    first_offset: int
    end_sample: int | None = None
    end_reason: EndReason | None = None
    last_offset: int = 0
    decided_timestamp_ms: int = 0  # of the message that completed the endpoint
    gaps: tuple[Gap, ...] = ()  # in it, where audio is missing


class Segment:
    """Feeds the audio of one utterance to a request of the engine and holds its text."""

    def __init__(self, info: SegmentInfo, speech: Speech, listener: Listener) -> None:
        self.info = info
        self.state = SegmentState.OPEN
        self.output = RequestOutput("")  # the last one of the engine
        self.failed = False
        self.told = False  # whether its last text was taken up
        self.rate_is_suspect = False  # by the times that its messages state
        self.published = False  # whether it has a final
        self._speech = speech
        self._listener = listener
        self._resampler = Resampler(info.media_rate, MODEL_RATE)
        self._check = EncodingCheck(info.context.encoding)
        self._request_id: str | None = speech.open(self, info.context.priority)

    @property
    def crashed(self) -> bool:
        """Whether its audio kills the process that decodes it."""
        return self.output.error_stage == CRASHED

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its audio and its messages make doubtful, as codes."""
        codes = []
        if self._check.suspect is not None:
            codes.append(f"{ErrorCode.ENCODING_SUSPECT.value}:{self._check.suspect.value}")
        if self.rate_is_suspect:
            codes.append(ErrorCode.SAMPLE_RATE_SUSPECT.value)
        return tuple(codes)

    @property
    def text(self) -> str:
        """What is said, as far as it was heard."""
        return self.output.text

    def move_to(self, state: SegmentState) -> None:
        """The only writer of `state`; raises RuntimeError on an edge that is not in the table."""
        if state not in EDGES[self.state]:
            raise RuntimeError(f"segment: {self.state} -> {state}")
        self.state = state

    def feed(self, samples: NDArray[np.int16]) -> None:
        """Take audio at the media rate, contiguous from `start_sample` on."""
        if self._check.listens:
            self._check.hear(samples)
        if self._request_id is not None:
            self._speech.feed(self._request_id, self._resampler.push(samples), None, False)

    def close(
        self,
        end_sample: int,
        reason: EndReason,
        last_offset: int,
        decided_timestamp_ms: int,
        gaps: tuple[Gap, ...] = (),
    ) -> None:
        """The cut is known: nothing follows. What is emitted after a forced cut is not ours."""
        # Where messages came out of order, the last one may have the lower offset.
        first_offset, last_offset = sorted((self.info.first_offset, last_offset))
        self.info = replace(
            self.info,
            first_offset=first_offset,
            end_sample=end_sample,
            end_reason=reason,
            last_offset=last_offset,
            decided_timestamp_ms=decided_timestamp_ms,
            gaps=gaps,
        )
        self._check.finish()
        self.move_to(SegmentState.CLOSED)
        if self._request_id is None:
            self._finish()
            return
        keep = None
        if reason is EndReason.MAX_LENGTH:
            keep = (end_sample - self.info.start_sample) * MODEL_RATE // self.info.media_rate
        self._speech.feed(self._request_id, self._resampler.flush(), keep, True)

    def receive(self, output: RequestOutput) -> None:
        """Take one output of the engine."""
        if self.state is SegmentState.DROPPED:
            return
        if not output.finished:
            least = self.info.context.options.min_stability
            before, self.output = self.output, stable_part(output, least)
            if least > 0.0 and self.text == before.text:
                return
            revision = output.decoded_samples * self.info.media_rate // MODEL_RATE
            self._listener.partial(self, revision)
            return
        self.output = output
        self._request_id = None
        self.failed = output.finish_reason != "stop"
        if self.state is SegmentState.CLOSED:
            self._finish()
        elif self.failed:
            self._listener.failed(self)

    def drop(self) -> None:
        """Hand-over or abort: leave the engine and publish nothing."""
        if self._request_id is not None:
            self._speech.drop(self._request_id)
            self._request_id = None
        if self.state is not SegmentState.DONE:
            self.move_to(SegmentState.DROPPED)

    def _finish(self) -> None:
        self.move_to(SegmentState.DECODED)
        self._listener.decoded(self)
