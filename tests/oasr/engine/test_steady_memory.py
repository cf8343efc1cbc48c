"""Steps leave nothing behind."""

import gc
import tracemalloc

import torch

from tests.support.engine import make_engine, noise


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def test_two_hundred_steps_of_open_streams_allocate_nothing_that_stays(tiny):
    engine = make_engine(tiny, chunk_size=4, num_left_chunks=2, max_batch_size=4)
    ids = [engine.add_streaming_request() for _ in range(4)]
    pieces = [0.02 * noise(2_560, seed) for seed in range(4)]

    def step() -> None:
        for request_id, piece in zip(ids, pieces, strict=True):
            engine.feed_chunk(request_id, piece)
        engine.step()

    for _ in range(60):
        step()
    blocks, tensors = engine.stats.kv_blocks, live_tensors()
    tracemalloc.start()
    try:
        step()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(200):
            step()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert engine.stats.windows == 4
    assert engine.stats.kv_blocks == blocks
    assert live_tensors() <= tensors
    # What was said grows with the tokens; a window of features alone would be 6 KiB a step.
    assert after - before < 200 * 2_000
