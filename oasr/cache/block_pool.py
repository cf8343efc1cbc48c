"""Hands out numbered places of a pool and takes them back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)


class BlockPool:
    """Ids `0 … num_blocks − 1`, each owned at most once; doubles when it may grow.

    Bookkeeping only: whoever owns tensors with one row an id makes them larger in `enlarge`.
    """

    def __init__(
        self,
        num_blocks: int,
        max_num_blocks: int | None = None,
        enlarge: Callable[[int], None] | None = None,
    ) -> None:
        """`max_num_blocks` None: no ceiling. Raises ValueError on an empty pool.

        `enlarge` is told the new number of blocks before any of them is handed out. Where it
        raises for want of memory, the pool never grows again.
        """
        if num_blocks < 1 or (max_num_blocks is not None and max_num_blocks < 1):
            raise ValueError("a pool needs at least one block")
        if max_num_blocks is not None:
            num_blocks = min(num_blocks, max_num_blocks)
        self.num_blocks = num_blocks
        self._max_num_blocks = max_num_blocks
        self._enlarge = enlarge
        self._free = list(range(num_blocks - 1, -1, -1))
        self._used: set[int] = set()

    @property
    def num_used(self) -> int:
        return len(self._used)

    @property
    def num_free(self) -> int:
        """Ids that can be handed out without growing."""
        return len(self._free)

    @property
    def has_ceiling(self) -> bool:
        """Whether it has a size that it never passes, or had no memory to grow."""
        return self._max_num_blocks is not None

    def allocate(self, count: int) -> list[int] | None:
        """`count` ids, or None, and nothing handed out, when there is no room for all."""
        while len(self._free) < count:
            if not self._grow():
                return None
        ids = [self._free.pop() for _ in range(count)]
        self._used.update(ids)
        return ids

    def free(self, ids: Iterable[int]) -> None:
        """Takes ids back; raises KeyError for one that is not in use."""
        for block in ids:
            self._used.remove(block)
            self._free.append(block)

    def _grow(self) -> bool:
        grown = 2 * self.num_blocks
        if self._max_num_blocks is not None:
            grown = min(grown, self._max_num_blocks)
        if grown == self.num_blocks:
            return False
        if self._enlarge is not None:
            try:
                self._enlarge(grown)
            except (MemoryError, RuntimeError):  # torch's want of memory is a RuntimeError
                logger.warning("no memory for %d blocks: %d are all", grown, self.num_blocks)
                self._max_num_blocks = self.num_blocks
                return False
        self._free[:0] = range(grown - 1, self.num_blocks - 1, -1)
        self.num_blocks = grown
        return True
