"""What a beam hears is in the audio alone, whatever pieces it comes in and whoever is beside it.

Streams with beams of several widths, with and without hotwords and rescoring, in random pieces and
among streams of other searches, are held against the same stream by itself that got all at once.
Readings as good as equal may change places with the shape of a batch: the engine says so, and of
such a result the score alone is compared.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.options import DecodingOptions, Hotword
from oasr.engine.engine import ASREngine
from oasr.engine.families import BUNDLED_MODEL
from oasr.engine.request import RequestOutput
from oasr.models.registry import LoadedModel, load_model
from tests.support.engine import Samples, make_engine, terminal
from tests.support.exactness import CLIPS, spoken, utterances

PIECES = (37, 320, 1_600, 10_240, 33_333)
WAYS = [
    DecodingOptions(),
    DecodingOptions("prefix_beam", beam=4, n_best=2, confidences=True),
    DecodingOptions("prefix_beam", beam=10, word_times=True),
    DecodingOptions("prefix_beam", beam=6, hotwords=(Hotword("account", 4.0), Hotword("seven"))),
    DecodingOptions("rescoring", beam=8, n_best=3, word_times=True),
]

Stream = tuple[Samples, DecodingOptions]


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load_model(BUNDLED_MODEL, "cpu", torch.float32)


def alone(loaded: LoadedModel, stream: Stream) -> RequestOutput:
    engine = make_engine(loaded, num_left_chunks=4)
    request_id = engine.add_streaming_request(decoding=stream[1])
    engine.feed_chunk(request_id, stream[0], is_last=True)
    return terminal(engine.run())[request_id]


def together(engine: ASREngine, streams: Sequence[Stream], seed: int) -> list[RequestOutput]:
    """Finals of streams that begin at random moments and come in random pieces."""
    rng = random.Random(seed)
    outputs: list[RequestOutput] = []
    left = {f"u{number}": samples for number, (samples, _) in enumerate(streams)}
    begun: set[str] = set()
    while left:
        name = rng.choice(sorted(left))
        if name not in begun:
            engine.add_streaming_request(name, decoding=streams[int(name[1:])][1])
            begun.add(name)
        count = rng.choice(PIECES)
        engine.feed_chunk(name, left[name][:count], is_last=count >= len(left[name]))
        left[name] = left[name][count:]
        if not len(left[name]):
            del left[name]
        if rng.random() < 0.4:
            outputs += engine.step()
    found = terminal(outputs + engine.run())
    return [found[f"u{number}"] for number in range(len(streams))]


def compare(loaded: LoadedModel, streams: Sequence[Stream], seed: int) -> int:
    """Asserts that all is heard as it is alone; how many were compared in their text."""
    engine = make_engine(loaded, num_left_chunks=4, max_batch_size=3)
    compared = 0
    for stream, found in zip(streams, together(engine, streams, seed), strict=True):
        expected = alone(loaded, stream)
        assert found.finish_reason == expected.finish_reason == "stop"
        assert found.decoded_samples == expected.decoded_samples == len(stream[0])
        if expected.near_tie or found.near_tie:
            continue
        compared += 1
        assert (found.text, found.tokens) == (expected.text, expected.tokens)
        assert found.scores == pytest.approx(expected.scores, abs=1e-4)
        assert found.words == expected.words
        assert found.nbest[:1] == () or found.nbest[0].text == expected.nbest[0].text
    return compared


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    streams=st.lists(
        st.tuples(spoken() | utterances(longest=60_000), st.sampled_from(WAYS)),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 99_999),
)
def test_beams_in_any_pieces_and_company_hear_what_they_hear_alone(bundled, streams, seed):
    compare(bundled, streams, seed)


def test_most_of_what_beams_hear_is_far_from_ties(bundled):
    """Else the comparison above would be empty."""
    streams = [
        (soundfile.read(CLIPS[7 * at], dtype="float32")[0], way) for at, way in enumerate(WAYS)
    ]

    assert compare(bundled, streams, 5) >= len(WAYS) - 1
