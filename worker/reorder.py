"""Messages that came before their turn: how many wait for a missing one, and for how long.

What waits is decided by the order of the messages in the partition alone. Time is counted in
*moments*, two for each offset, so that an heir can tell what was decided when: `2 * offset` lies
before the message at an offset is handled, `2 * offset + 1` is the handling of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from worker.codec import Chunk
from worker.messages import RawMessage


def moment_at(offset: int) -> int:
    """While the message at an offset is handled."""
    return 2 * offset + 1


def moment_after(offset: int) -> int:
    """When all messages up to an offset were handled."""
    return 2 * offset + 2


@dataclass(frozen=True, slots=True)
class ReorderLimits:
    """What may wait for a missing message, in a stream; more of either declares it lost."""

    most_messages: int = 8
    most_audio_ms: int = 1_000


class Waiting(NamedTuple):
    """A message whose number lies above the one that comes next."""

    raw: RawMessage
    chunk: Chunk


class ReorderWindow:
    """The messages of one stream that came before their turn, by their numbers.

    `moment` is set in an heir: messages before it were handled by the former owner, so that
    those which are not finished are only gathered until then. At that very moment the owner
    took the first message that it did not finish.
    """

    __slots__ = ("_bytes", "_limits", "_most_bytes", "_waiting", "moment")

    def __init__(self, limits: ReorderLimits, byte_rate: int, moment: int | None = None) -> None:
        """`byte_rate` is that of the stream, in bytes a second."""
        self.moment = moment
        self._limits = limits
        self._most_bytes = limits.most_audio_ms * byte_rate // 1000
        self._waiting: dict[int, Waiting] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._waiting

    @property
    def is_full(self) -> bool:
        """Whether the first missing message is given up."""
        return len(self._waiting) > self._limits.most_messages or self._bytes > self._most_bytes

    @property
    def lowest_sequence(self) -> int:
        """The lowest number that waits; ValueError when nothing does."""
        return min(self._waiting)

    @property
    def offsets(self) -> list[int]:
        """The offsets of all that waits."""
        return [waiting.raw.offset for waiting in self._waiting.values()]

    def hold(self, sequence: int, waiting: Waiting) -> None:
        """Keep a message until its turn; its number must not be here yet."""
        self._waiting[sequence] = waiting
        self._bytes += len(waiting.chunk.audio or b"")

    def take(self, sequence: int) -> Waiting:
        """Remove a message; KeyError if its number is not here."""
        waiting = self._waiting.pop(sequence)
        self._bytes -= len(waiting.chunk.audio or b"")
        return waiting
