"""What names a session, and the states of its life."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class SessionState(Enum):
    """OPEN takes audio; ENDING finishes its spans; ENDED waits for its event; CLOSED is over."""

    OPEN = auto()
    ENDING = auto()
    ENDED = auto()
    CLOSED = auto()
    DROPPED = auto()


EDGES = {
    SessionState.OPEN: {SessionState.ENDING, SessionState.DROPPED},
    SessionState.ENDING: {SessionState.ENDED, SessionState.DROPPED},
    SessionState.ENDED: {SessionState.CLOSED, SessionState.DROPPED},
    SessionState.CLOSED: set(),
    SessionState.DROPPED: set(),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Names a session and places it in time."""

    key: bytes
    topic: str
    partition: int
    origin: int  # offset of the message with which the clock began
    position_ms: int = 0  # media time of sample 0
    from_sample: int | None = None  # set when the session goes on from another origin

    @property
    def session_id(self) -> str:
        return self.key.decode()

    @property
    def origin_name(self) -> str:
        return f"{self.partition}-{self.origin}"
