"""What is said depends on the audio alone: not on pieces, company, moments, slots or memory.

In each example streams in random pieces among others are held against the full forward of each
utterance alone under the same chunk mask, and against the stream that got all at once. Where the
two best tokens of a frame are nearer than 1e-3 the text may change with the shape of a batch;
such utterances are compared in everything but their text. The frame of a token may change between
frames of one run that are equally good.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.families import BUNDLED_MODEL
from oasr.models.registry import LoadedModel, load_model
from tests.support.engine import Samples, make_engine
from tests.support.exactness import (
    bursts,
    clicks,
    expect,
    said,
    silence,
    spoken,
    stream_among_others,
    utterances,
)

WINDOWINGS = [(16, -1), (16, 4), (16, 0), (8, 2), (4, -1), (4, 3), (1, 4)]


def compare(
    loaded: LoadedModel, audio: Sequence[Samples], seed: int, slots: int, **windowing: int
) -> int:
    """Asserts that all is said right; how many utterances were compared in their text."""
    expected = [expect(loaded, samples, **windowing) for samples in audio]
    engine = make_engine(loaded, max_batch_size=slots, **windowing)
    together = make_engine(loaded, offline_chunk_size=windowing["chunk_size"], **windowing)

    streamed = stream_among_others(engine, audio, seed)
    whole = together.transcribe(audio)

    compared = 0
    for one, outputs, batched in zip(expected, streamed, whole, strict=True):
        final = outputs[-1]
        assert final.finished
        assert final.finish_reason == batched.finish_reason == "stop"
        assert final.decoded_samples == batched.decoded_samples == one.whole.decoded_samples
        if one.is_tied:
            continue
        compared += 1
        assert said(outputs) == one.said
        for found in (final, batched):
            assert (found.text, found.tokens) == (one.whole.text, one.whole.tokens)
            frames = zip(found.token_frames, one.whole.token_frames, strict=True)
            assert all(one.may_be_at(*pair) for pair in frames)
            assert found.scores == pytest.approx(one.whole.scores, abs=1e-4)
    return compared


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    audio=st.lists(utterances(), min_size=1, max_size=4),
    windowing=st.sampled_from(WINDOWINGS),
    slots=st.integers(1, 5),
    seed=st.integers(0, 99_999),
)
def test_streams_in_any_pieces_and_company_are_the_masked_whole(
    tiny, audio, windowing, slots, seed
):
    chunk, left = windowing

    compare(tiny, audio, seed, slots, chunk_size=chunk, num_left_chunks=left)


def test_most_utterances_are_far_from_ties(tiny):
    """Else the comparison above would be empty."""
    audio = [samples for seed in range(12) for samples in _of_every_kind(seed)]

    compared = compare(tiny, audio, 1, 7, chunk_size=8, num_left_chunks=2)

    assert compared >= 0.8 * len(audio)


def _of_every_kind(seed: int) -> list[Samples]:
    return [kind(9_000 + 777 * seed, seed) for kind in (bursts, clicks, silence)]


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load_model(BUNDLED_MODEL, "cpu", torch.float32)


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(
    audio=st.lists(spoken() | utterances(longest=80_000), min_size=1, max_size=3),
    windowing=st.sampled_from([(16, 4), (16, -1), (4, -1)]),
    seed=st.integers(0, 99_999),
)
def test_the_bundled_model_streams_as_it_decodes_whole_utterances(bundled, audio, windowing, seed):
    chunk, left = windowing

    compare(bundled, audio, seed, 3, chunk_size=chunk, num_left_chunks=left)
