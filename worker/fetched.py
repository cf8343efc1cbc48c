"""How much the client has fetched: what a pause throws away is fetched once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Fetched:
    """Counts the messages of one consumer by its statistics, each time that they are told."""

    def __init__(self, count: Callable[[int], None]) -> None:
        """`count` is told of messages that were fetched since it was told last."""
        self._count = count
        self._before = 0

    def told(self, statistics: Mapping[str, Any]) -> None:
        """Read the client's statistics; `rxmsgs` is the total since the client began."""
        total = int(statistics.get("rxmsgs", 0))
        if total > self._before:
            self._count(total - self._before)
            self._before = total
