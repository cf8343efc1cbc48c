"""Streams: what they say depends on their audio alone, and equals the masked full forward."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.engine import make_engine, noise, stream_all, stream_in_pieces


def said(outputs):
    return [
        (o.text, o.tokens, o.token_frames, o.finished, o.finish_reason, o.decoded_samples)
        for o in outputs
    ]


@pytest.mark.parametrize(("chunk", "left"), [(16, -1), (16, 4), (16, 0), (4, -1), (4, 2), (1, 3)])
def test_streamed_equals_the_full_forward_under_the_chunk_mask(tiny, chunk, left):
    utterances = [noise(n, seed) for seed, n in enumerate([700, 16_000, 40_123, 90_000])]
    setting = {"chunk_size": chunk, "num_left_chunks": left}
    whole = make_engine(tiny, offline_chunk_size=chunk, **setting).transcribe(utterances)

    streamed = stream_all(make_engine(tiny, **setting), utterances)

    assert sum(len(o.tokens) for o in whole) > 20
    for one, other in zip(streamed, whole, strict=True):
        assert (one.text, one.tokens, one.token_frames) == (
            other.text,
            other.tokens,
            other.token_frames,
        )
        assert one.scores == pytest.approx(other.scores, abs=1e-4)
        assert one.decoded_samples == other.decoded_samples


@settings(deadline=None, max_examples=25)
@given(edges=st.lists(st.integers(0, 50_000), max_size=12).map(sorted))
def test_any_split_says_the_same_at_the_same_samples(tiny, edges):
    audio = noise(50_000, seed=7)
    whole = stream_in_pieces(make_engine(tiny, chunk_size=4), audio, [])

    split = stream_in_pieces(make_engine(tiny, chunk_size=4), audio, edges)

    assert len(whole) > 5
    assert said(split) == said(whole)


def test_single_samples_say_the_same_as_the_whole(tiny):
    audio = noise(13_000, seed=8)
    whole = stream_in_pieces(make_engine(tiny, chunk_size=4), audio, [])

    split = stream_in_pieces(make_engine(tiny, chunk_size=4), audio, range(1, 13_000))

    assert said(split) == said(whole)


@pytest.mark.parametrize("width", [2, 7, 32])
def test_batch_mates_at_other_offsets_change_nothing(tiny, width):
    utterances = [noise(9_000 + 2_500 * seed, seed) for seed in range(width)]
    alone = [stream_all(make_engine(tiny, chunk_size=4), [audio])[0] for audio in utterances]
    engine = make_engine(tiny, chunk_size=4, max_batch_size=width)
    outputs = {}
    for turn in range(400):
        for number, audio in enumerate(utterances):
            begin = (turn - number) * 1_900  # each stream starts a turn after the one before
            if begin == 0:
                engine.add_streaming_request(str(number))
            if 0 <= begin < len(audio):
                piece = audio[begin : begin + 1_900]
                engine.feed_chunk(str(number), piece, begin + 1_900 >= len(audio))
        outputs.update((o.request_id, o) for o in engine.run() if o.finished)

    assert sum(len(o.tokens) for o in alone) > width
    for number, expected in enumerate(alone):
        found = outputs[str(number)]
        assert (found.tokens, found.token_frames) == (expected.tokens, expected.token_frames)
        assert found.scores == pytest.approx(expected.scores, abs=1e-4)


def test_a_step_limited_in_windows_says_the_same_later(tiny):
    audio = noise(60_000, seed=9)
    whole = stream_in_pieces(make_engine(tiny), audio, [])

    limited = make_engine(tiny, max_chunks_per_step=1)
    found = stream_in_pieces(limited, audio, [])

    assert said(found) == said(whole)


def test_one_step_takes_all_audio_that_is_there(tiny):
    engine = make_engine(tiny)
    engine.add_streaming_request("a")
    for _ in range(100):
        engine.feed_chunk("a", noise(320, seed=1))

    engine.step()

    assert engine.stats.windows == engine._family.runner.geometry.full_windows(32_000) == 3
    assert not engine.has_work


def test_tokens_at_or_after_keep_samples_are_dropped(tiny):
    audio = noise(60_000, seed=11)
    (whole,) = stream_all(make_engine(tiny, chunk_size=4), [audio])
    keep_samples = whole.token_frames[len(whole.tokens) // 2] * 640
    engine = make_engine(tiny, chunk_size=4)
    engine.add_streaming_request("a")
    engine.feed_chunk("a", audio, is_last=True, keep_samples=keep_samples)

    kept = engine.run()[-1]

    assert kept.token_frames == tuple(f for f in whole.token_frames if f * 640 < keep_samples)
    assert kept.tokens == whole.tokens[: len(kept.tokens)]
    assert kept.decoded_samples == 60_000


@pytest.mark.parametrize("samples", [0, 1, 399, 400, 1199])
def test_short_and_silent_audio_ends_well(tiny, samples):
    engine = make_engine(tiny)
    audio = np.zeros(samples, dtype=np.float32)

    outputs = stream_all(engine, [audio]) + engine.transcribe([audio])

    assert [o.finish_reason for o in outputs] == ["stop", "stop"]
    assert [o.decoded_samples for o in outputs] == [samples, samples]


def test_an_end_without_new_audio_ends_the_stream(tiny):
    engine = make_engine(tiny)
    audio = noise(30_000, seed=3)
    engine.add_streaming_request("a")
    engine.feed_chunk("a", audio)
    engine.run()
    engine.feed_chunk("a", audio[:0], is_last=True)

    (ended,) = [o for o in engine.run() if o.finished]

    assert ended.tokens == stream_all(make_engine(tiny), [audio])[0].tokens


@pytest.mark.parametrize(
    ("streams", "ceiling", "forwards"), [(1, None, 2), (2, None, 2), (5, None, 4), (1, 8, 10)]
)
def test_few_streams_that_are_behind_share_forwards_with_themselves(
    tiny, streams, ceiling, forwards
):
    engine = make_engine(tiny, num_left_chunks=2, max_num_blocks=ceiling)
    samples = engine._family.runner.geometry.samples_end(10)
    ids = [engine.add_streaming_request() for _ in range(streams)]
    for seed, request_id in enumerate(ids):
        engine.feed_chunk(request_id, noise(samples, seed))

    engine.step()

    assert engine.stats.windows == 10 * streams
    assert engine.stats.forwards == forwards
