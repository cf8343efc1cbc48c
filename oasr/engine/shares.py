"""How much of the engine each tenant has had, as far as anybody waits for it: fair queueing.

Every waiting tenant has a mark, the work that it was given; the next turn goes to the lowest. One
that was away comes back no lower than the lowest that waits: it has saved up nothing, and owes
what it had beyond that.
"""

from __future__ import annotations

from typing import Final

_SPARE: Final = 64  # marks of tenants that are away and never worth a clean-up


class Shares:
    """Marks of tenants, in the unit of the work that is charged."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._waiting: set[str] = set()

    def join(self, tenant: str) -> None:
        """The tenant, which had nothing waiting, has now."""
        lowest = min((self._marks[name] for name in self._waiting), default=0)
        self._marks[tenant] = max(self._marks.get(tenant, 0), lowest)
        self._waiting.add(tenant)

    def leave(self, tenant: str) -> None:
        """Nothing of the tenant waits any more."""
        self._waiting.remove(tenant)
        if not self._waiting:
            self._marks.clear()
        elif len(self._marks) > 2 * len(self._waiting) + _SPARE:
            lowest = min(self._marks[name] for name in self._waiting)
            self._marks = {
                name: mark
                for name, mark in self._marks.items()
                if name in self._waiting or mark > lowest
            }

    def charge(self, tenant: str, work: int) -> None:
        """The tenant, which still waits, had a turn."""
        self._marks[tenant] += work

    def mark(self, tenant: str) -> int:
        """The work that the waiting tenant was given."""
        return self._marks[tenant]
