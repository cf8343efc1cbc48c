"""Which offset a partition may commit. Pure bookkeeping: no Kafka, no clock, no locks."""

from __future__ import annotations

from collections import OrderedDict


class OffsetTracker:
    """The open messages of one assigned partition, from assignment to revocation.

    Offsets rise but may skip (compaction, transaction markers), so nothing here looks at
    neighbouring numbers. When to commit is somebody else's question.
    """

    __slots__ = ("_highest", "_open", "_position")

    def __init__(self, position: int) -> None:
        """Starts at `position`, the next offset that the partition would deliver."""
        self._position = position
        self._highest: int | None = None
        # An OrderedDict and not a dict: the oldest key of a dict costs a walk over the
        # slots of those removed before it.
        self._open: OrderedDict[int, None] = OrderedDict()

    def received(self, offset: int) -> None:
        """Opens a message that was read; ValueError unless it is above all read before."""
        floor = self._position if self._highest is None else self._highest + 1
        if offset < floor:
            raise ValueError(f"offset {offset} read again; expected at least {floor}")
        self._highest = offset
        self._open[offset] = None

    def done(self, offset: int) -> bool:
        """Closes a message all of whose output is acknowledged; False if it was not open."""
        if offset not in self._open:
            return False
        del self._open[offset]
        return True

    def is_open(self, offset: int) -> bool:
        """Whether the message was received and is not done."""
        return offset in self._open

    @property
    def watermark(self) -> int:
        """The offset to commit: the lowest open one, else the next unread. Never moves back."""
        if self._open:
            return next(iter(self._open))
        return self._position if self._highest is None else self._highest + 1

    @property
    def highest(self) -> int | None:
        """The highest offset received; None before the first."""
        return self._highest

    def oldest_open(self) -> int | None:
        """The lowest open offset; None when nothing is open."""
        return next(iter(self._open), None)

    def open_offsets(self) -> tuple[int, ...]:
        """All open offsets, ascending."""
        return tuple(self._open)

    def __len__(self) -> int:
        """How many messages are open."""
        return len(self._open)
