"""A call heard again by the file model after its end: `<segment id>:final:<pass>`.

The audio of the call's segments is kept in memory for that, of calls that asked for it, within
bounds. It dies with the worker, and may be too much: then the pass is not possible, which the
ended event says (`second_pass_impossible`). That event comes after the last record of the pass, and
the message that ended the call stays open until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from oasr.audio.resample import Resampler
from oasr.decoding.options import DecodingOptions
from oasr.engine.request import RequestOutput
from worker.ports import Owner, Ports
from worker.segments import Segment

if TYPE_CHECKING:
    from worker.sessions import Session

MODEL_RATE: Final = 16_000

Receiver = Callable[[RequestOutput], None]


class Reader(Protocol):
    """The model of the pass."""

    def transcribe(
        self,
        audio: NDArray[np.float32],
        priority: int,
        decoding: DecodingOptions,
        receiver: Receiver,
        tenant: str = "",
    ) -> str:
        """Queue a whole segment."""

    def drop(self, request_id: str) -> None:
        """Forget it."""


@dataclass(slots=True)
class SecondPasses:
    """What all second passes of a worker share."""

    name: str  # of the pass, in records
    model: str  # as the settings name it
    reader: Callable[[Owner], Reader]  # for the requests of a partition
    holding: Callable[[str], Reader]  # where a request was opened
    most_bytes: int  # of audio that is kept, in all calls
    most_session_s: int  # of audio of one call, all channels together
    kept_bytes: int = 0


@dataclass(slots=True)
class Kept:
    """The audio of a segment, and what is heard in it the second time."""

    segment: Segment
    parts: list[NDArray[np.int16]] = field(default_factory=list)
    request_id: str | None = None
    output: RequestOutput | None = None


class PassState(Enum):
    """NONE was not asked for; KEEPING takes audio; READING decodes it; the rest is over."""

    NONE = auto()
    KEEPING = auto()
    READING = auto()
    DONE = auto()
    IMPOSSIBLE = auto()
    DROPPED = auto()


EDGES: Final = {
    PassState.NONE: {PassState.KEEPING, PassState.IMPOSSIBLE, PassState.DROPPED},
    PassState.KEEPING: {PassState.READING, PassState.IMPOSSIBLE, PassState.DROPPED},
    PassState.READING: {PassState.DONE, PassState.DROPPED},
    PassState.DONE: {PassState.DROPPED},
    PassState.IMPOSSIBLE: {PassState.DROPPED},
    PassState.DROPPED: set(),
}


class SecondPass:
    """The second pass of one session and origin."""

    def __init__(self, session: Session, ports: Ports) -> None:
        self.state = PassState.NONE
        self.finals = 0
        self._session = session
        self._ports = ports
        self._shared = ports.second_passes
        self._kept: list[Kept] = []
        self._kept_bytes = 0
        self._samples = 0
        self._unacknowledged = 0

    def move_to(self, state: PassState) -> None:
        """The only writer of `state`; raises RuntimeError on an edge that is not in the table."""
        if state not in EDGES[self.state]:
            raise RuntimeError(f"second pass: {self.state} -> {state}")
        self.state = state

    @property
    def was_asked(self) -> bool:
        """Whether the call wants one, as far as is known."""
        return self.state not in (PassState.NONE, PassState.DROPPED)

    @property
    def holds_end(self) -> bool:
        """Whether the ended event waits for it."""
        return self.state in (PassState.KEEPING, PassState.READING)

    def restore(self, was_asked: bool, is_complete: bool) -> None:
        """Go on as a former owner left it: what that had finished is heard no more."""
        if was_asked:
            is_possible = is_complete and self._shared is not None
            self.move_to(PassState.KEEPING if is_possible else PassState.IMPOSSIBLE)

    def opened(self, segment: Segment) -> None:
        """A segment begins: keep its audio, if the call asked for a second pass by now."""
        if self.state is PassState.NONE and segment.info.context.options.second_pass:
            # What was heard before nobody asked to keep.
            is_first = self._shared is not None
            self.move_to(PassState.KEEPING if is_first else PassState.IMPOSSIBLE)
        if self.state is PassState.KEEPING:
            self._kept.append(Kept(segment))

    def heard(self, segment: Segment, samples: NDArray[np.int16]) -> None:
        """Audio of a segment that is open."""
        shared = self._shared
        if self.state is not PassState.KEEPING or shared is None:
            return
        for kept in reversed(self._kept):  # that of a channel's open segment is among the last
            if kept.segment is segment:
                break
        else:
            return
        kept.parts.append(samples)
        self._kept_bytes += samples.nbytes
        shared.kept_bytes += samples.nbytes
        self._samples += len(samples)
        most_samples = shared.most_session_s * segment.info.media_rate
        if shared.kept_bytes > shared.most_bytes or self._samples > most_samples:
            self._forget()
            self.move_to(PassState.IMPOSSIBLE)

    def begin(self) -> None:
        """The call is over and all of it is told: hear it again."""
        if self.state is not PassState.KEEPING or self._shared is None:
            return
        self.move_to(PassState.READING)
        reader = self._shared.reader(self._ports)
        for kept in self._kept:
            options = kept.segment.info.context.options
            kept.request_id = reader.transcribe(
                _audio_of(kept),
                kept.segment.info.context.priority,
                options.second_decoding,
                self._receiver(kept),
                options.tenant,
            )
            kept.parts.clear()
        self._advance()

    def drop(self) -> None:
        """Hand-over or abort: leave the engine and tell nothing more."""
        if self.state is PassState.READING and self._shared is not None:
            for kept in self._kept:
                if kept.request_id is not None and kept.output is None:
                    self._shared.holding(kept.request_id).drop(kept.request_id)
        self._forget()
        if self.state is not PassState.DROPPED:
            self.move_to(PassState.DROPPED)

    # -- inside -------------------------------------------------------------------------------

    def _receiver(self, kept: Kept) -> Receiver:
        def receive(output: RequestOutput) -> None:
            if self.state is PassState.READING:
                kept.output = output
                self._advance()

        return receive

    def _advance(self) -> None:
        """Tell what is heard, in the order of the segments; end after the last is safe."""
        assert self._shared is not None
        while self._kept and (output := self._kept[0].output) is not None:
            segment = self._kept.pop(0).segment
            if not (output.text or output.finish_reason != "stop" or segment.published):
                continue
            self.finals += 1
            self._unacknowledged += 1
            record = self._ports.records.heard_again(
                self._session.identity, segment, output, self._shared.name, self._shared.model
            )
            self._ports.publish(record, self._acknowledged)
        if not self._kept and not self._unacknowledged and self.state is PassState.READING:
            self._forget()
            self.move_to(PassState.DONE)
            self._session.span_finished()

    def _acknowledged(self) -> None:
        self._unacknowledged -= 1
        self._advance()

    def _forget(self) -> None:
        self._kept.clear()
        if self._shared is not None:
            self._shared.kept_bytes -= self._kept_bytes
        self._kept_bytes = 0


def _audio_of(kept: Kept) -> NDArray[np.float32]:
    """A segment's audio at the model's rate, up to its cut."""
    info = kept.segment.info
    assert info.end_sample is not None  # the call is over
    heard = np.concatenate(kept.parts) if kept.parts else np.zeros(0, dtype=np.int16)
    resampler = Resampler(info.media_rate, MODEL_RATE)
    samples = heard[: info.end_sample - info.start_sample]
    return np.concatenate([resampler.push(samples), resampler.flush()])
