"""More open streams than slots, and than the pool has room for: all finish as if alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.engine import ASREngine
from tests.support.engine import make_engine, noise, stream_all, terminal

CHUNK = 4
SAMPLES = 24_000  # 10 to 11 windows of 4 encoder frames with the final silence
AUDIO = [noise(SAMPLES, seed) for seed in range(6)]


def blocks_of_one_stream(left: int, block: int) -> int:
    """Blocks that one stream of SAMPLES holds at most."""
    frames = (SAMPLES + 8_000) // 640 + 2 * CHUNK
    if left < 0:
        return -(-frames // block)
    return -(-((left + 1) * CHUNK) // block) + 1


def nothing_is_held(engine: ASREngine) -> bool:
    caches = engine._family.runner.caches
    held = (caches.kv.pool.num_used, caches.slots.num_used, caches.parked_bytes)
    return held == (0, 0, 0) and not engine._scheduler._index and not engine.has_work


@settings(deadline=None, max_examples=40)
@given(
    left=st.sampled_from([-1, 0, 1, 3]),
    block=st.sampled_from([4, 5, 16]),
    spare_blocks=st.integers(0, 8),
    slots=st.integers(1, 5),
    priorities=st.lists(st.integers(0, 2), min_size=1, max_size=6),
    max_windows=st.sampled_from([None, 1, 2]),
    max_wait_time=st.sampled_from([0.0, 0.2, 60.0]),
    data=st.data(),
)
def test_any_number_of_interleaved_streams_finishes_with_any_pool(
    tiny, left, block, spare_blocks, slots, priorities, max_windows, max_wait_time, data
):
    windowing = {"chunk_size": CHUNK, "num_left_chunks": left, "block_size_frames": block}
    expected = stream_all(make_engine(tiny, **windowing), AUDIO[: len(priorities)])
    engine = make_engine(
        tiny,
        max_batch_size=slots,
        max_num_blocks=blocks_of_one_stream(left, block) + spare_blocks,
        max_chunks_per_step=max_windows,
        max_wait_time=max_wait_time,
        **windowing,
    )
    names = [engine.add_streaming_request(priority=p) for p in priorities]
    aborted = data.draw(st.sets(st.sampled_from(range(len(names))), max_size=2))
    fed = dict.fromkeys(range(len(names)), 0)
    outputs = []
    while fed:
        number = data.draw(st.sampled_from(sorted(fed)))
        begin, end = fed[number], fed[number] + data.draw(st.sampled_from([700, 4_000, SAMPLES]))
        engine.feed_chunk(names[number], AUDIO[number][begin:end], is_last=end >= SAMPLES)
        fed[number] = end
        if end >= SAMPLES or (number in aborted and end > SAMPLES // 2):
            del fed[number]
            if number in aborted:
                assert engine.abort_request(names[number])
        for _ in range(data.draw(st.integers(0, 2))):
            outputs += engine.step()
    outputs += engine.run()

    found = terminal(outputs)
    assert found.keys() == set(names)
    for number, name in enumerate(names):
        if number in aborted:
            assert found[name].finish_reason == "abort"
        else:
            assert found[name].finish_reason == "stop"
            assert found[name].tokens == expected[number].tokens
            assert found[name].token_frames == expected[number].token_frames
            assert found[name].scores == pytest.approx(expected[number].scores, abs=1e-4)
    assert nothing_is_held(engine)


@pytest.mark.parametrize("left", [-1, 2])
def test_parked_caches_come_back_to_the_bit(tiny, left):
    windowing = {"chunk_size": CHUNK, "num_left_chunks": left, "max_chunks_per_step": 1}
    alone = [stream_all(make_engine(tiny, **windowing), [audio])[0] for audio in AUDIO]
    blocks = blocks_of_one_stream(left, 16)
    engine = make_engine(tiny, max_batch_size=1, max_num_blocks=blocks, **windowing)
    names = [engine.add_streaming_request() for _ in AUDIO]
    outputs = []
    for begin in range(0, SAMPLES, 3_000):
        for name, audio in zip(names, AUDIO, strict=True):
            piece = audio[begin : begin + 3_000]
            engine.feed_chunk(name, piece, is_last=begin + 3_000 >= SAMPLES)
        outputs += engine.run()

    found = terminal(outputs)

    assert engine._family.runner.caches.moves > len(AUDIO)
    for name, expected in zip(names, alone, strict=True):
        assert found[name].tokens == expected.tokens
        assert found[name].scores == expected.scores  # the same bits, one window a forward
    assert nothing_is_held(engine)


def test_a_stream_without_a_window_has_no_caches(tiny):
    engine = make_engine(tiny)
    engine.add_streaming_request("new")
    engine.feed_chunk("new", noise(5_000, 1))

    engine.step()

    assert engine.stats.running == 1
    assert engine._family.runner.caches.slots.num_used == 0


@pytest.mark.slow
def test_thousands_of_short_streams_half_of_them_abandoned_give_everything_back(tiny):
    engine = make_engine(
        tiny, chunk_size=8, num_left_chunks=2, max_batch_size=16, max_num_blocks=24
    )
    audio = noise(6_000, 1)
    sizes = set()
    for _ in range(50):
        names = [engine.add_streaming_request(priority=n % 3) for n in range(100)]
        for name in names:
            engine.feed_chunk(name, audio)
        engine.run()
        for number, name in enumerate(names):
            if number % 2:
                engine.feed_chunk(name, audio[:500], is_last=True)
            else:
                assert engine.abort_request(name)
        found = terminal(engine.run())
        assert [found[name].finish_reason for name in names] == ["abort", "stop"] * 50
        assert nothing_is_held(engine)
        caches = engine._family.runner.caches
        sizes.add((caches.kv.nbytes, caches.slots.num_blocks))
    assert engine._family.runner.caches.moves > 1_000  # the half that ends comes back
    assert len(sizes) == 1


def test_the_host_memory_of_parked_streams_is_that_of_their_visible_history(tiny):
    engine = make_engine(tiny, chunk_size=4, num_left_chunks=2, max_batch_size=1, max_num_blocks=2)
    long_ago = np.tile(AUDIO[0], 3)
    names = [engine.add_streaming_request() for _ in range(12)]
    for name in names:
        engine.feed_chunk(name, long_ago)
    engine.run()

    layers, heads, dim, block = 2, 2, 8, 16
    block_bytes = 4 * layers * block * heads * 2 * dim
    cnn_bytes = 4 * layers * 16 * 4
    most = 2 * block_bytes + cnn_bytes  # 12 visible frames reach into two blocks of 16
    parked = engine._family.runner.caches.parked_bytes
    assert 11 * (block_bytes + cnn_bytes) <= parked <= 11 * most
    assert (engine.stats.kv_block_bytes, engine.stats.parked_bytes) == (block_bytes, parked)
