"""What a session needs of the partition that it lives on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from oasr.audio.segmenter import SegmenterConfig
from worker.errors import ErrorCode
from worker.media_clock import ClockLimits
from worker.messages import OutRecord
from worker.options import SessionOptions
from worker.reorder import ReorderLimits
from worker.segments import Speech
from worker.tracing import Work

if TYPE_CHECKING:
    from worker.publisher import Publisher
    from worker.second_pass import SecondPasses
    from worker.sessions import Session


@dataclass(frozen=True, slots=True)
class Limits:
    """What cuts or ends a session though no audio decides it."""

    idle_finalize_s: float = 10.0
    session_ttl_s: float = 3600.0
    emit_empty: bool = False
    max_sessions: int = 5_000  # of a partition; above it the longest idle ones end
    reorder: ReorderLimits = field(default_factory=ReorderLimits)
    clock: ClockLimits = field(default_factory=ClockLimits)


class Counters(Protocol):
    """What is counted on the way of a message; the metrics implement it."""

    def consumed(self, topic: str) -> None:
        """A message was read."""

    def processed(self, topic: str, outcome: str) -> None:
        """A message is finished."""

    def dead_letter(self, code: ErrorCode) -> None:
        """A message was refused."""

    def audio(self, outcome: str, seconds: float) -> None:
        """Audio of one channel was decoded, or was silence, or was dropped."""

    def segment(self, reason: str, has_text: bool) -> None:
        """A segment has its last text."""

    def final_acknowledged(self, latency_s: float) -> None:
        """A final is on its topic, so long after the message that completed it."""

    def worked(self, work: Work) -> None:
        """All of a segment or a file is on its topics."""


class Owner(Protocol):
    """A partition, as far as the choice of the process goes that decodes it."""

    number: int
    start_counter: int


class Ports(Protocol):
    """The partition, as its sessions see it."""

    number: int
    start_counter: int
    speech: Speech
    records: Publisher
    limits: Limits
    counters: Counters
    second_passes: SecondPasses | None  # None: no model for them

    def now(self) -> float:
        """Monotonic seconds."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""

    def publish(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        """Send a record; `on_ack` runs once the broker has it, unless the assignment is over."""

    def release(self, offset: int, outcome: str = "ok") -> None:
        """A message is finished: nothing that it caused is outstanding."""

    def is_published(self, offset: int) -> bool:
        """Whether the former owner had the events of this message acknowledged."""

    def segmenter_config(self, options: SessionOptions) -> SegmenterConfig:
        """The endpointing that a message's options ask for."""

    def closed(self, session: Session) -> None:
        """The ended event of a session is acknowledged."""
