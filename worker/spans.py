"""What a channel's audio is cut into, what waits in its queue, and what it needs of its session."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oasr.audio.segmenter import EndReason, SegmenterConfig
from worker.segments import Listener, Segment, SegmentState, Speech
from worker.session_map import PendingCut
from worker.streams import MessageContext


class ChannelOwner(Listener, Protocol):
    """What a channel needs of its session."""

    speech: Speech

    def context_at(self, channel: int, sample: int) -> MessageContext: ...

    def segmenter_config(self, context: MessageContext) -> SegmenterConfig: ...

    def opened(self, segment: Segment) -> None: ...

    def heard(self, segment: Segment, samples: NDArray[np.int16]) -> None: ...

    def count_audio(self, decoded_s: float, silence_s: float) -> None: ...

    def span_finished(self) -> None: ...

    def pending_applied(self, pending: PendingCut) -> None: ...


class PendingState(Enum):
    """A cut that no audio decides: proposed, then committed, then applied at its sample."""

    PROPOSED = auto()
    COMMITTED = auto()
    APPLIED = auto()


@dataclass(slots=True)
class Span:
    """A stretch between two cuts; finished when its segment, if any, needs nothing more."""

    end_sample: int
    segment: Segment | None

    @property
    def finished(self) -> bool:
        return self.segment is None or self.segment.state is SegmentState.DONE


@dataclass(frozen=True, slots=True)
class ForcedCut:
    """A place in the queue of a channel's audio where a control message cuts, or gives up."""

    reason: EndReason | None  # None: an abort


@dataclass(frozen=True, slots=True)
class Skip:
    """A place in the queue where nothing is heard up to a sample: what is open ends there."""

    to_sample: int
