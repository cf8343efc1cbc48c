"""Caches move out of the pools and back: to the bit, in the order of those who need them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.cache.cnn_cache import CnnCache
from oasr.cache.paged_kv import KvLayout, PagedKv
from oasr.cache.parking import Room, StreamCache, StreamCaches

LAYERS, HEADS, HEAD_DIM, CHANNELS, FRAMES = 2, 3, 4, 5, 6
CPU = torch.device("cpu")


def make_caches(
    max_num_blocks: int | None = None, left: int = -1, chunk: int = 4, block: int = 4
) -> StreamCaches:
    layout = KvLayout(LAYERS, HEADS, HEAD_DIM, chunk, left, block)
    kv = PagedKv(layout, CPU, torch.float32, num_blocks=1, max_num_blocks=max_num_blocks)
    return StreamCaches(kv, CnnCache(LAYERS, CHANNELS, FRAMES, CPU, torch.float32), 1)


def go_on(caches: StreamCaches, cache: StreamCache, seed: int) -> tuple[torch.Tensor, ...]:
    """A chunk of one stream that has room; what its forward was given."""
    slots, generator = [cache.slot], torch.Generator().manual_seed(seed)
    history, cnn = caches.kv.gather(slots), caches.cnn.gather(torch.tensor(slots))
    chunk = caches.kv.layout.chunk_frames
    new = torch.randn((LAYERS, 1, HEADS, chunk, 2 * HEAD_DIM), generator=generator)
    caches.kv.commit(slots, new)
    new_cnn = torch.randn((LAYERS, 1, CHANNELS, FRAMES), generator=generator)
    caches.cnn.scatter(torch.tensor(slots), new_cnn)
    return history.kv * history.mask[:, None, :, None], history.offsets, cnn


@settings(deadline=None, max_examples=60)
@given(
    left=st.integers(-1, 3),
    block=st.integers(4, 6),
    spare_blocks=st.integers(0, 6),
    turns=st.lists(st.lists(st.integers(0, 4), unique=True, min_size=1), min_size=1, max_size=14),
    parks=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 4))),
)
def test_streams_that_share_a_small_pool_see_what_they_see_in_a_large_one(
    left, block, spare_blocks, turns, parks
):
    longest = 4 * sum(len(turn) for turn in turns)
    visible = longest if left < 0 else min(longest, (left + 1) * 4 + block)
    small = make_caches(-(-visible // block) + spare_blocks, left, block=block)
    large = make_caches(None, left, block=block)
    here, there = ([StreamCache() for _ in range(5)] for _ in "ab")

    for number, turn in enumerate(turns):
        waiting = list(turn)
        while waiting:
            rooms = small.take_room([here[stream] for stream in waiting])
            assert rooms[0] is Room.TAKEN
            assert Room.NEVER not in rooms
            large.take_room([there[stream] for stream in waiting])
            for stream, room in list(zip(waiting, rooms, strict=True)):
                if room is Room.TAKEN:
                    found = go_on(small, here[stream], number)
                    expected = go_on(large, there[stream], number)
                    assert all(map(torch.equal, found, expected))
                    waiting.remove(stream)
        for _, stream in (park for park in parks if park[0] == number):
            small.park(here[stream])

    assert large.moves == 0
    for cache in here:
        small.close(cache)
    assert (small.kv.pool.num_used, small.slots.num_used, small.parked_bytes) == (0, 0, 0)


def test_whoever_was_not_used_for_longest_gives_way():
    caches = make_caches(2)
    first, second, third = (StreamCache() for _ in range(3))
    for number, cache in enumerate([first, second, first]):
        assert caches.take_room([cache]) == [Room.TAKEN]
        if number < 2:
            go_on(caches, cache, number)
    # `first` has reserved a second block at the cost of `second`.
    assert (first.slot is None, second.slot is None) == (False, True)

    assert caches.take_room([third]) == [Room.TAKEN]

    assert first.slot is None
    assert first.saved.kv.length_frames == 4


def test_nobody_gives_way_to_a_stream_behind_it():
    caches = make_caches(2)
    streams = [StreamCache() for _ in range(4)]
    for cache in streams[2:]:
        caches.take_room([cache])
        go_on(caches, cache, 1)

    rooms = caches.take_room(streams)

    assert rooms == [Room.TAKEN, Room.TAKEN, Room.LATER, Room.LATER]
    assert [cache.slot is None for cache in streams] == [False, False, True, True]


def test_a_stream_too_large_for_the_pool_alone_loses_its_caches_and_the_next_goes_on():
    caches = make_caches(1)
    large, other = StreamCache(), StreamCache()
    caches.take_room([large])
    go_on(caches, large, 1)

    assert caches.take_room([large, other]) == [Room.NEVER, Room.TAKEN]

    assert (large.slot, large.saved) == (None, None)
    assert caches.kv.pool.num_used == 1


def test_repeating_takes_nothing_more():
    caches = make_caches(8)
    streams = [StreamCache() for _ in range(3)]
    for _ in range(3):
        assert caches.take_room(streams) == [Room.TAKEN] * 3

    assert (caches.kv.pool.num_used, caches.slots.num_used, caches.moves) == (3, 3, 0)


def test_a_parked_stream_takes_its_own_size_of_host_memory():
    caches = make_caches()
    cache = StreamCache()
    for number in range(3):
        caches.take_room([cache])
        go_on(caches, cache, number)

    caches.park(cache)

    frame_bytes = LAYERS * HEADS * 2 * HEAD_DIM * 4
    assert caches.parked_bytes == 3 * 4 * frame_bytes + LAYERS * CHANNELS * FRAMES * 4
    assert caches.kv.pool.num_used == 0
    caches.close(cache)
    assert caches.parked_bytes == 0


@pytest.mark.parametrize("error", [MemoryError, torch.cuda.OutOfMemoryError, RuntimeError])
def test_a_pool_that_cannot_grow_lets_streams_give_way_from_then_on(monkeypatch, error):
    caches = make_caches()
    first, second = StreamCache(), StreamCache()
    caches.take_room([first])
    go_on(caches, first, 1)

    def no_memory(*_: object, **__: object) -> None:
        raise error("not enough memory")

    monkeypatch.setattr(torch, "cat", no_memory)
    assert caches.take_room([second]) == [Room.TAKEN]

    assert first.saved is not None
    assert caches.kv.pool.num_blocks == 1


def test_a_stream_whose_caches_cannot_come_back_is_lost_alone(monkeypatch):
    caches = make_caches()
    lost, kept = StreamCache(), StreamCache()
    for cache in (lost, kept):
        caches.take_room([cache])
        go_on(caches, cache, 1)
        caches.park(cache)
    restore = caches.kv.restore
    bad = lost.saved.kv

    def failing(slot, saved):
        if saved is bad:
            raise MemoryError
        return restore(slot, saved)

    monkeypatch.setattr(caches.kv, "restore", failing)

    assert caches.take_room([lost, kept]) == [Room.NEVER, Room.TAKEN]
    assert (caches.kv.pool.num_used, caches.slots.num_used) == (2, 1)
    assert caches.parked_bytes == 0
