"""What happens again and again is told once a minute, with how often it happened."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

TELL_EVERY_S: Final = 60.0


class Seldom:
    """Decides which of many equal log lines is written; the kinds must be few."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: dict[Hashable, float] = {}
        self._untold: dict[Hashable, int] = {}

    def ending(self, kind: Hashable) -> str | None:
        """None: keep silent. Else write the line with this behind it: nothing, or how many of its
        kind were kept silent about since the last."""
        now, told = self._now(), self._told.get(kind)
        if told is not None and now - told < TELL_EVERY_S:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return None
        self._told[kind] = now
        untold = self._untold.pop(kind, 0)
        return f" ({untold} more since the last line like this)" if untold else ""
