"""What a network knows of positions, kept for those that are in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TABLE_BLOCK: Final = 128  # positions
KEPT_BLOCKS: Final = 32  # in use or not, while nothing needs their place


class PositionTable:
    """Rows of positions in blocks, of which those go that were not used for longest.

    A position's row is always computed in the same block, so its bits do not depend on what else
    is in the table. How many blocks there are is bounded by `KEPT_BLOCKS` and by what one call
    holds, not by how long a stream has been going on.
    """

    def __init__(self, compute: Callable[[int], Tensor], empty: Tensor) -> None:
        """`compute(first)` gives the rows (TABLE_BLOCK, …) from `first` on, `empty` none (0, …)."""
        self._compute = compute
        self._rows = empty  # (places · TABLE_BLOCK, …)
        self._places: NDArray[np.int64] = np.full(8, -1)  # of each block; -1: not there
        self._device_places = torch.zeros(8, dtype=torch.int64, device=empty.device)
        self._block_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._used_at: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # call number, by place
        self._calls = 0

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def hold(self, firsts: NDArray[np.int64], pasts: NDArray[np.int64]) -> None:
        """Have the rows from `firsts` up to `pasts` (B,) of each stream, until the next call."""
        spans = set(zip(firsts // TABLE_BLOCK, (pasts - 1) // TABLE_BLOCK, strict=True))
        blocks = np.unique(np.concatenate([np.arange(low, high + 1) for low, high in spans]))
        if blocks[-1] >= len(self._places):
            self._know(2 * int(blocks[-1]))
        self._calls += 1
        places = self._places[blocks]
        self._used_at[places[places >= 0]] = self._calls
        missing = blocks[places < 0]
        if len(missing):
            with torch.inference_mode():
                self._add(missing)

    def __getitem__(self, positions: Tensor) -> Tensor:
        """The rows (…, …) of int64 `positions` (…), all of which are held."""
        places = self._device_places[positions // TABLE_BLOCK]
        return self._rows[places * TABLE_BLOCK + positions % TABLE_BLOCK]

    def _know(self, num_blocks: int) -> None:
        grown = num_blocks - len(self._places)
        self._places = np.pad(self._places, (0, grown), constant_values=-1)

    def _add(self, missing: NDArray[np.int64]) -> None:
        for block, place in zip(missing.tolist(), self._free_places(len(missing)), strict=True):
            if self._block_at[place] >= 0:
                self._places[self._block_at[place]] = -1
            first = place * TABLE_BLOCK
            self._rows[first : first + TABLE_BLOCK] = self._compute(block * TABLE_BLOCK)
            self._places[block], self._block_at[place] = place, block
            self._used_at[place] = self._calls
        device = self._device_places.device
        self._device_places = torch.from_numpy(self._places.clip(0)).to(device)

    def _free_places(self, count: int) -> list[int]:
        """Places for `count` blocks: of what was not used for longest, or new ones."""
        used = len(self._used_at)
        spare = np.argsort(self._used_at, kind="stable")[: int((self._used_at < self._calls).sum())]
        added = max(count - len(spare), min(count, KEPT_BLOCKS - used), 0)
        if added:
            more = self._rows.new_zeros(added * TABLE_BLOCK, *self._rows.shape[1:])
            self._rows = torch.cat([self._rows, more])
            self._block_at = np.pad(self._block_at, (0, added), constant_values=-1)
            self._used_at = np.pad(self._used_at, (0, added))
        return [*range(used, used + added), *spare[: count - added].tolist()]
