"""Attention history of the running streams in blocks of one pool.

A chunk is in three steps: `reserve` room, `gather` what the chunk may see, run the
model, `commit` what it returned. Nothing changes for a stream before `commit`, so a
failed forward can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oasr.cache.block_pool import BlockPool
from oasr.cache.host_copy import to_host


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Sizes of the cached keys and values; frames are encoder frames."""

    num_layers: int
    heads: int
    head_dim: int
    chunk_frames: int
    num_left_chunks: int = -1
    block_frames: int = 16

    def __post_init__(self) -> None:
        if self.chunk_frames > self.block_frames:
            raise ValueError("chunk_frames must not exceed block_frames")

    @property
    def history_frames(self) -> int | None:
        """Frames before a chunk that it may see; None: all of them."""
        return None if self.num_left_chunks < 0 else self.num_left_chunks * self.chunk_frames


class History(NamedTuple):
    """What the next chunk of each stream sees, aligned to the right."""

    kv: Tensor  # (layers, B, heads, cache_frames, 2 * head_dim)
    mask: Tensor  # (B, cache_frames) bool
    offsets: Tensor  # (B,) int64 on the CPU: frames committed, the index of the chunk's first


class SavedKv(NamedTuple):
    """A stream's history outside the pool."""

    blocks: Tensor  # (layers, blocks, block_frames, heads * 2 * head_dim) in host memory
    first_block: int  # index in the stream of the first of them
    length_frames: int


class PagedKv:
    """Keys and values of every stream, each stream a row of an int32 block table."""

    def __init__(
        self,
        layout: KvLayout,
        device: torch.device,
        dtype: torch.dtype,
        num_blocks: int = 64,
        max_num_blocks: int | None = None,
    ) -> None:
        """`num_blocks` to start with; `max_num_blocks` None lets the pool double for ever."""
        self.layout = layout
        self.pool = BlockPool(num_blocks, max_num_blocks, self._enlarge)
        self._device = device
        # (layers, blocks, block_frames, heads * 2 * head_dim): one frame is one row to copy
        self._blocks = torch.zeros(
            layout.num_layers,
            self.pool.num_blocks,
            layout.block_frames,
            layout.heads * 2 * layout.head_dim,
            device=device,
            dtype=dtype,
        )
        self._table = np.zeros((1, 4), dtype=np.int32)
        self._held = np.zeros(1, dtype=np.int64)  # blocks in the row
        self._first = np.zeros(1, dtype=np.int64)  # index in the stream of the row's first block
        self._length = np.zeros(1, dtype=np.int64)  # frames committed

    @property
    def nbytes(self) -> int:
        return self._blocks.nbytes

    def length_frames(self, slot: int) -> int:
        """Frames committed to the stream since `open`."""
        return int(self._length[slot])

    def open(self, slot: int) -> None:
        """Starts an empty stream in `slot`."""
        rows = len(self._held)
        if slot >= rows:
            grown = max(slot + 1, 2 * rows) - rows
            self._table = np.pad(self._table, ((0, grown), (0, 0)))
            self._held, self._first, self._length = (
                np.pad(a, (0, grown)) for a in (self._held, self._first, self._length)
            )
        self._held[slot] = self._first[slot] = self._length[slot] = 0

    def close(self, slot: int) -> None:
        """Gives the stream's blocks back."""
        self.pool.free(self._table[slot, : self._held[slot]].tolist())
        self._held[slot] = 0

    def save(self, slot: int) -> SavedKv:
        """Closes `slot` and returns what it held, for `restore`, to the bit."""
        held = self._to_device(self._table[slot, : self._held[slot]].astype(np.int64))
        saved = SavedKv(
            to_host(self._blocks.index_select(1, held)),
            int(self._first[slot]),
            int(self._length[slot]),
        )
        self.close(slot)
        return saved

    def restore(self, slot: int, saved: SavedKv) -> bool:
        """Goes on in `slot`, which is closed, with room for one more chunk.

        False, and nothing changed, where blocks are short.
        """
        self.open(slot)
        self._first[slot], self._length[slot] = saved.first_block, saved.length_frames
        if not self.reserve([slot])[0]:
            return False
        count = saved.blocks.shape[1]
        held = self._to_device(self._table[slot, :count].astype(np.int64))
        values = saved.blocks.to(self._device, non_blocking=True)
        self._blocks.index_copy_(1, held, values)
        return True

    def reserve(self, slots: Sequence[int], chunks: int = 1) -> list[bool]:
        """Takes the blocks for so many more chunks of each slot; False: no room for that one.

        Repeating a reservation that was not committed takes nothing more.
        """
        fresh: list[int] = []
        room = [self._reserve_one(slot, chunks, fresh) for slot in slots]
        if fresh:
            # A former owner's NaN would outlive any mask that multiplies by zero.
            self._blocks.index_fill_(1, torch.tensor(fresh, device=self._device), 0)
        return room

    def gather(self, slots: Sequence[int]) -> History:
        """The history that the mask of training lets the next chunk of each slot see."""
        rows = np.asarray(slots, dtype=np.int64)
        lengths = self._length[rows]
        limit = self.layout.history_frames
        visible = lengths if limit is None else np.minimum(lengths, limit)
        width = int(visible.max(initial=0))
        frames = lengths[:, None] + np.arange(-width, 0)
        mask = frames >= (lengths - visible)[:, None]
        index = self._places(rows, np.where(mask, frames, self._first_frame(rows)))
        kv = self._flat().index_select(1, self._to_device(index.ravel()))
        shape = (len(kv), len(rows), width, self.layout.heads, 2 * self.layout.head_dim)
        return History(
            kv.view(shape).transpose(2, 3), self._to_device(mask), torch.from_numpy(lengths)
        )

    def commit(self, slots: Sequence[int], new_kv: Tensor) -> None:
        """Appends chunks, (layers, B, heads, frames, 2 * head_dim), to each reserved slot."""
        self.write(slots, new_kv)
        self.advance(slots, new_kv.shape[3])

    def write(self, slots: Sequence[int], new_kv: Tensor) -> None:
        """Puts chunks where they will be once `advance` is called; may be repeated."""
        rows = np.asarray(slots, dtype=np.int64)
        if self.layout.num_left_chunks != 0:
            frames = self._length[rows][:, None] + np.arange(new_kv.shape[3])
            index = self._to_device(self._places(rows, frames).ravel())
            values = new_kv.transpose(2, 3).reshape(len(new_kv), len(index), -1)
            self._flat().index_copy_(1, index, values.to(self._blocks.dtype))

    def advance(self, slots: Sequence[int], frames: int) -> None:
        """Counts the written frames as history; bookkeeping that cannot fail."""
        rows = np.asarray(slots, dtype=np.int64)
        self._length[rows] += frames
        limit = self.layout.history_frames
        if limit:
            oldest = np.maximum(self._length[rows] - limit, 0) // self.layout.block_frames
            for row in rows[oldest > self._first[rows]]:
                self._evict(int(row), limit)

    def _evict(self, slot: int, limit_frames: int) -> None:
        """Drops the blocks that no later chunk can see."""
        oldest = (self._length[slot] - limit_frames) // self.layout.block_frames
        count = min(int(oldest - self._first[slot]), int(self._held[slot]))
        row = self._table[slot]
        self.pool.free(row[:count].tolist())
        row[: len(row) - count] = row[count:].copy()
        self._held[slot] -= count
        self._first[slot] += count

    def _reserve_one(self, slot: int, chunks: int, fresh: list[int]) -> bool:
        if self.layout.num_left_chunks == 0:
            return True
        end = int(self._length[slot]) + chunks * self.layout.chunk_frames
        held = int(self._held[slot])
        missing = -(-end // self.layout.block_frames) - int(self._first[slot]) - held
        if missing <= 0:
            return True
        ids = self.pool.allocate(missing)
        if ids is None:
            return False
        width = self._table.shape[1]
        if held + missing > width:
            added = max(width, held + missing - width)
            self._table = np.pad(self._table, ((0, 0), (0, added)))
        self._table[slot, held : held + missing] = ids
        self._held[slot] = held + missing
        fresh.extend(ids)
        return True

    def _enlarge(self, num_blocks: int) -> None:
        layers, blocks, block_frames, width = self._blocks.shape
        added = self._blocks.new_zeros(layers, num_blocks - blocks, block_frames, width)
        self._blocks = torch.cat([self._blocks, added], dim=1)

    def _first_frame(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._first[rows][:, None] * self.layout.block_frames

    def _places(
        self, rows: npt.NDArray[np.int64], frames: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Rows of `_flat` that hold `frames` (B, n) of each stream."""
        block, within = np.divmod(frames, self.layout.block_frames)
        ids = self._table[rows[:, None], block - self._first[rows][:, None]]
        return ids.astype(np.int64) * self.layout.block_frames + within

    def _flat(self) -> Tensor:
        return self._blocks.flatten(1, 2)

    def _to_device(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(self._device)
