import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oasr.cache.paged_kv import KvLayout, PagedKv

LAYERS, HEADS, HEAD_DIM = 2, 3, 4


def make_kv(chunk: int = 4, left: int = -1, block: int = 16, **pool: int) -> PagedKv:
    layout = KvLayout(LAYERS, HEADS, HEAD_DIM, chunk, left, block)
    return PagedKv(layout, torch.device("cpu"), torch.float32, **pool)


def chunk_of(kv: PagedKv, streams: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, streams, HEADS, kv.layout.chunk_frames, 2 * HEAD_DIM)
    return torch.randn(shape, generator=generator)


def visible_frames(length: int, chunk: int, left: int) -> range:
    """WeNet's training mask for the chunk that begins at `length`, written out."""
    first = 0 if left < 0 else max((length // chunk - left) * chunk, 0)
    return range(first, length)


@settings(deadline=None, max_examples=40)
@given(
    chunk=st.integers(1, 5),
    left=st.integers(-1, 6),
    block=st.integers(5, 9),
    steps=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=25),
    ends=st.sets(st.integers(0, 24)),
)
def test_paged_history_equals_a_contiguous_one(chunk, left, block, steps, ends):
    kv = make_kv(chunk, left, block, num_blocks=1)
    naive = [torch.zeros(LAYERS, HEADS, 0, 2 * HEAD_DIM) for _ in range(4)]
    for slot in range(4):
        kv.open(slot)
    for number, step in enumerate(steps):
        slots = sorted(step, reverse=bool(number % 2))
        assert all(kv.reserve(slots))
        history = kv.gather(slots)
        width = history.kv.shape[3]
        for row, slot in enumerate(slots):
            frames = visible_frames(naive[slot].shape[2], chunk, left)
            assert history.offsets[row] == naive[slot].shape[2]
            assert history.mask[row].tolist() == [c >= width - len(frames) for c in range(width)]
            got = history.kv[:, row, :, width - len(frames) :]
            assert torch.equal(got, naive[slot][:, :, frames.start :])
        new = chunk_of(kv, len(slots), number)
        kv.commit(slots, new)
        for row, slot in enumerate(slots):
            naive[slot] = torch.cat([naive[slot], new[:, row]], dim=2)
        if number in ends:
            kv.close(slots[0])
            kv.open(slots[0])
            naive[slots[0]] = naive[slots[0]][:, :, :0]
    for slot in range(4):
        kv.close(slot)
    assert kv.pool.num_used == 0


def test_a_stream_with_bounded_history_holds_a_flat_number_of_blocks():
    kv = make_kv(chunk=16, left=4, num_blocks=8)
    kv.open(0)
    used, size = set(), kv.nbytes
    for number in range(300):
        kv.reserve([0])
        kv.commit([0], chunk_of(kv, 1, number))
        if number >= 5:
            used.add(kv.pool.num_used)

    assert used == {4}
    assert kv.nbytes == size
    assert kv.length_frames(0) == 4800


def test_no_left_context_needs_no_blocks():
    kv = make_kv(left=0, max_num_blocks=1)
    kv.open(0)
    for number in range(9):
        assert kv.reserve([0]) == [True]
        kv.commit([0], chunk_of(kv, 1, number))

    assert kv.gather([0]).kv.shape[3] == 0
    assert kv.pool.num_used == 0


def test_a_full_pool_refuses_the_one_that_finds_no_room():
    kv = make_kv(chunk=16, num_blocks=2, max_num_blocks=2)
    for slot in range(3):
        kv.open(slot)

    assert kv.reserve([0, 1, 2]) == [True, True, False]
    assert kv.reserve([0, 1]) == [True, True]

    kv.close(0)
    assert kv.reserve([2]) == [True]


def test_an_uncommitted_chunk_can_be_repeated():
    kv = make_kv(chunk=4)
    kv.open(0)
    kv.reserve([0])
    kv.commit([0], chunk_of(kv, 1, 0))
    before = kv.gather([0])
    kv.reserve([0])
    kv.reserve([0])

    after = kv.gather([0])

    assert torch.equal(before.kv, after.kv)
    assert kv.pool.num_used == 1


def test_a_block_that_held_nan_is_clean_for_its_next_owner():
    kv = make_kv(chunk=4, num_blocks=1, max_num_blocks=1)
    kv.open(0)
    kv.reserve([0])
    kv.commit([0], torch.full_like(chunk_of(kv, 1, 0), float("nan")))
    kv.close(0)
    kv.open(1)
    kv.open(0)

    kv.reserve([1])
    kv.commit([1], chunk_of(kv, 1, 1))

    # Columns that the mask hides may come from any block, so none may hold a stranger's NaN.
    assert torch.isfinite(kv.gather([1, 0]).kv).all()


def test_a_chunk_longer_than_a_block_is_refused():
    with pytest.raises(ValueError, match="chunk_frames"):
        KvLayout(1, 1, 1, chunk_frames=17, block_frames=16)


@pytest.mark.parametrize("left", [-1, 0, 2])
def test_several_chunks_at_once_are_kept_like_one_after_the_other(left):
    at_once, in_turn = make_kv(4, left, 5), make_kv(4, left, 5)
    at_once.open(0)
    in_turn.open(0)
    for number, chunks in enumerate((1, 3, 8, 2)):
        generator = torch.Generator().manual_seed(number)
        new = torch.randn(LAYERS, 1, HEADS, 4 * chunks, 2 * HEAD_DIM, generator=generator)
        assert at_once.reserve([0], chunks) == [True]
        at_once.commit([0], new)
        for part in new.split(4, dim=3):
            in_turn.reserve([0])
            in_turn.commit([0], part)

        assert at_once.length_frames(0) == in_turn.length_frames(0)
        assert at_once.pool.num_used == in_turn.pool.num_used
        assert torch.equal(at_once.gather([0]).kv, in_turn.gather([0]).kv)
