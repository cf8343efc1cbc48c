import torch

from oasr.cache.cnn_cache import CnnCache


def make_cache() -> CnnCache:
    cache = CnnCache(2, 3, 4, torch.device("cpu"), torch.float32)
    cache.enlarge(5)
    return cache


def test_what_was_scattered_is_gathered_in_any_order():
    cache = make_cache()
    for slot in range(5):
        cache.open(slot)
    states = torch.randn(2, 3, 3, 4, generator=torch.Generator().manual_seed(0))

    cache.scatter(torch.tensor([4, 0, 2]), states)

    got = cache.gather(torch.tensor([2, 1, 4, 0]))
    assert torch.equal(got[:, [0, 2, 3]], states[:, [2, 0, 1]])
    assert not got[:, 1].any()


def test_a_reused_slot_starts_with_silence_even_after_nan():
    cache = make_cache()
    cache.open(0)
    cache.scatter(torch.tensor([0]), torch.full((2, 1, 3, 4), float("nan")))

    cache.open(0)

    assert torch.equal(cache.gather(torch.tensor([0])), torch.zeros(2, 1, 3, 4))


def test_growth_keeps_the_histories():
    cache = make_cache()
    cache.open(0)
    states = torch.ones(2, 1, 3, 4)
    cache.scatter(torch.tensor([0]), states)

    cache.enlarge(10)
    cache.open(9)

    assert torch.equal(cache.gather(torch.tensor([0])), states)
    assert not cache.gather(torch.tensor([9])).any()
