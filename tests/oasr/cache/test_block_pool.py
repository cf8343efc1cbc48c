import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.cache.block_pool import BlockPool


def test_a_bounded_pool_says_none_and_keeps_what_it_has():
    pool = BlockPool(3, max_num_blocks=3)
    taken = pool.allocate(2)

    assert pool.allocate(2) is None
    assert pool.num_free == 1
    assert taken is not None
    assert len(set(taken)) == 2


def test_an_unbounded_pool_doubles():
    pool = BlockPool(1)

    ids = [pool.allocate(1) for _ in range(9)]

    assert sorted(i for (i,) in ids) == list(range(9))
    assert pool.num_blocks == 16


def test_a_pool_grows_to_its_ceiling_and_no_further():
    pool = BlockPool(2, max_num_blocks=3)

    assert len(pool.allocate(3) or []) == 3
    assert pool.allocate(1) is None
    assert pool.num_blocks == 3


def test_a_block_cannot_be_returned_twice():
    pool = BlockPool(2)
    ids = pool.allocate(1)
    assert ids is not None
    pool.free(ids)

    with pytest.raises(KeyError):
        pool.free(ids)


@pytest.mark.parametrize(("num_blocks", "ceiling"), [(0, None), (4, 0)])
def test_an_empty_pool_is_refused(num_blocks, ceiling):
    with pytest.raises(ValueError, match="at least one"):
        BlockPool(num_blocks, ceiling)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_id_has_two_owners_and_none_is_lost(data):
    pool = BlockPool(data.draw(st.integers(1, 5)), data.draw(st.sampled_from([None, 7, 20])))
    owned: list[list[int]] = []
    for _ in range(30):
        if owned and data.draw(st.booleans()):
            pool.free(owned.pop(data.draw(st.integers(0, len(owned) - 1))))
        elif (ids := pool.allocate(data.draw(st.integers(0, 4)))) is not None:
            owned.append(ids)

        flat = [i for ids in owned for i in ids]
        assert len(flat) == len(set(flat)) == pool.num_used
        assert pool.num_used + pool.num_free == pool.num_blocks


def test_a_pool_that_finds_no_memory_has_a_ceiling_from_then_on() -> None:
    def enlarge(num_blocks: int) -> None:
        raise MemoryError(num_blocks)

    pool = BlockPool(1, enlarge=enlarge)
    assert not pool.has_ceiling

    assert pool.allocate(2) is None

    assert pool.has_ceiling
    assert pool.allocate(1) == [0]
