"""Caches of more streams than the pools hold: who needs room now gets it, others wait outside.

A stream's caches are in the pools under one slot, or parked in host memory, to the bit, or do not
exist yet. They are made at the stream's first forward, and parked when the room is needed for
another stream: those first that were not used for longest. Parking is nothing that a stream
notices, so its place in the schedule is another matter.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from torch import Tensor

from oasr.cache.block_pool import BlockPool
from oasr.cache.cnn_cache import CnnCache
from oasr.cache.paged_kv import PagedKv, SavedKv

logger = logging.getLogger(__name__)


class Room(Enum):
    """What a stream that wants to go on is told."""

    TAKEN = auto()  # its caches are in place, with room for one more chunk
    LATER = auto()  # streams before it fill the pool; ask again when these have moved on
    NEVER = auto()  # there is no room for it even alone; it has lost its caches


class Saved(NamedTuple):
    """The caches of one stream in host memory."""

    kv: SavedKv
    cnn: Tensor  # (layers, channels, frames)

    @property
    def nbytes(self) -> int:
        return self.kv.blocks.nbytes + self.cnn.nbytes


class StreamCache:
    """Where one stream's caches are; `StreamCaches` moves them."""

    __slots__ = ("saved", "slot")

    def __init__(self) -> None:
        self.slot: int | None = None  # in the pools
        self.saved: Saved | None = None  # parked


class StreamCaches:
    """The caches of all open streams, in the pools and outside."""

    def __init__(self, kv: PagedKv, cnn: CnnCache, num_slots: int) -> None:
        """`num_slots` to start with."""
        self.kv = kv
        self.cnn = cnn
        self.slots = BlockPool(num_slots, enlarge=cnn.enlarge)
        self.parked_bytes = 0  # in host memory now
        self.moves = 0  # times that a stream's caches were parked
        cnn.enlarge(num_slots)
        self._resident: OrderedDict[StreamCache, None] = OrderedDict()  # longest unused first

    def take_room(self, wanted: Sequence[StreamCache]) -> list[Room]:
        """Brings the caches of `wanted` in place for one more chunk each.

        Earlier ones come first: no stream gives way to one behind it, so the first one is told
        TAKEN or NEVER. Repeating it for a chunk that was not committed takes nothing more.
        """
        try:
            if self._take_all(wanted):
                return [Room.TAKEN] * len(wanted)
        except Exception:
            logger.exception("caches failed for a batch of %d", len(wanted))
        return self._take_in_turn(wanted)

    def park(self, cache: StreamCache) -> None:
        """Moves the caches out of the pools; nothing where they are not there."""
        if cache.slot is None:
            return
        cnn = self.cnn.save(cache.slot)
        cache.saved = Saved(self.kv.save(cache.slot), cnn)
        self.parked_bytes += cache.saved.nbytes
        self.moves += 1
        self._leave(cache)

    def close(self, cache: StreamCache) -> None:
        """Drops the caches, wherever they are."""
        if cache.slot is not None:
            self.kv.close(cache.slot)
            self._leave(cache)
        self._forget_saved(cache)

    def _take_all(self, wanted: Sequence[StreamCache]) -> bool:
        """True where all have room and nobody has to give way."""
        for cache in wanted:
            if not self._place(cache):
                return False
        return all(self.kv.reserve([cache.slot for cache in wanted if cache.slot is not None]))

    def _take_in_turn(self, wanted: Sequence[StreamCache]) -> list[Room]:
        """One after the other, each at the cost of all that are not before it."""
        spared = set(wanted)
        victims = deque(cache for cache in self._resident if cache not in spared)
        victims.extend(reversed(wanted))
        rooms: list[Room] = []
        settled: set[StreamCache] = set()
        for cache in wanted:
            settled.add(cache)
            room = self._take_one(cache, victims, settled)
            if room is Room.LATER and Room.TAKEN not in rooms:
                room = Room.NEVER  # everybody else has given way
            if room is Room.NEVER:
                self.close(cache)
            rooms.append(room)
        return rooms

    def _take_one(
        self, cache: StreamCache, victims: deque[StreamCache], settled: set[StreamCache]
    ) -> Room:
        """Room at the cost of `victims`, in their order, up to the first that is `settled`."""
        try:
            while not (self._place(cache) and self._has_room(cache)):
                if not victims or victims[0] in settled:
                    return Room.LATER
                self.park(victims.popleft())
        except Exception:
            logger.exception("caches failed for one stream")
            return Room.NEVER
        return Room.TAKEN

    def _has_room(self, cache: StreamCache) -> bool:
        assert cache.slot is not None
        return self.kv.reserve([cache.slot])[0]

    def _place(self, cache: StreamCache) -> bool:
        """Makes sure that the caches are in the pools; False where there is no room."""
        if cache.slot is None and not self._enter(cache):
            return False
        self._resident.move_to_end(cache)
        return True

    def _enter(self, cache: StreamCache) -> bool:
        slots = self.slots.allocate(1)
        if slots is None:
            return False
        (slot,) = slots
        self.kv.open(slot)
        try:
            has_room = self._fill(slot, cache.saved)
        except Exception:
            self.kv.close(slot)
            self.slots.free(slots)
            raise
        if not has_room:
            self.slots.free(slots)
            return False
        self._forget_saved(cache)
        cache.slot = slot
        self._resident[cache] = None
        return True

    def _fill(self, slot: int, saved: Saved | None) -> bool:
        """Starts a stream in `slot`, or brings one back; False where blocks are short."""
        self.cnn.open(slot)
        if saved is None:
            return True
        if not self.kv.restore(slot, saved.kv):
            return False
        self.cnn.restore(slot, saved.cnn)
        return True

    def _leave(self, cache: StreamCache) -> None:
        assert cache.slot is not None
        del self._resident[cache]
        self.slots.free([cache.slot])
        cache.slot = None

    def _forget_saved(self, cache: StreamCache) -> None:
        if cache.saved is not None:
            self.parked_bytes -= cache.saved.nbytes
            cache.saved = None
