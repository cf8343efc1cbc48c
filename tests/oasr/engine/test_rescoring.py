"""Finals in the order of the attention decoder, of streams and of whole utterances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oasr.decoding.options import DecodingOptions
from oasr.decoding.rescored_beam import MOST_FRAMES
from oasr.decoding.wer import Wer
from oasr.engine.engine import ASREngine
from oasr.engine.request import Request, RequestOutput
from oasr.errors import OptionError
from oasr.models.conformer.decoder import AttentionDecoder
from oasr.models.registry import LoadedModel
from tests.support.decoders import random_weights
from tests.support.engine import Samples, make_bundled_engine, make_engine, noise, tiny_model
from tests.support.testsets import WORDS, read_list

RESCORING = DecodingOptions("rescoring", n_best=10)
BEAM = DecodingOptions("prefix_beam", n_best=10)

# (chunk size, left chunks) → percent, from the README of the model; None: whole utterances
STATED = {
    "human_digits": {None: 3.1, (16, -1): 4.3, (16, 4): 4.0, (4, -1): 5.5},
    "phrases": {None: 4.7, (16, -1): 4.7, (16, 4): 4.7, (4, -1): 6.0},
}


def rescorable() -> LoadedModel:
    """A random model with a random decoder."""
    loaded = tiny_model()
    return LoadedModel(
        loaded.model,
        loaded.settings,
        loaded.tokenizer,
        loaded.info,
        random_weights(loaded.settings),
    )


def streamed(
    engine: ASREngine, utterances: Sequence[Samples], decoding: DecodingOptions
) -> list[RequestOutput]:
    ids = [engine.add_streaming_request(decoding=decoding) for _ in utterances]
    for request_id, samples in zip(ids, utterances, strict=True):
        engine.feed_chunk(request_id, samples, is_last=True)
    found = {output.request_id: output for output in engine.run() if output.finished}
    return [found[request_id] for request_id in ids]


@pytest.mark.slow
@pytest.mark.parametrize("view", [None, (16, -1), (16, 4), (4, -1)])
@pytest.mark.parametrize("name", sorted(STATED))
def test_the_error_rates_of_the_readme_are_met_within_two_words(
    name: str, view: tuple[int, int] | None
) -> None:
    chunk_size, left_chunks = view or (16, -1)
    engine = make_bundled_engine(
        chunk_size=chunk_size, num_left_chunks=left_chunks, max_batch_size=32
    )
    audio, texts = zip(*read_list(name), strict=True)
    options = DecodingOptions("rescoring")

    found = streamed(engine, audio, options) if view else engine.transcribe(audio, options)

    wer = Wer()
    for text, output in zip(texts, found, strict=True):
        wer.add(text, output.text)
    assert wer.words == WORDS[name]
    assert wer.errors == pytest.approx(STATED[name][view] * wer.words / 100, abs=2.0)


def test_a_stream_is_rescored_like_the_same_chunks_of_a_whole_utterance() -> None:
    utterances = [noise(samples, seed) for seed, samples in enumerate([30_000, 9_000, 48_000])]
    engine = make_engine(rescorable(), chunk_size=4, num_left_chunks=2, offline_chunk_size=4)

    live = streamed(engine, utterances, RESCORING)
    whole = engine.transcribe(utterances, RESCORING)

    for one, other in zip(live, whole, strict=True):
        assert [a.tokens for a in one.nbest] == [a.tokens for a in other.nbest]
        assert [a.score for a in one.nbest] == pytest.approx([a.score for a in other.nbest])


def test_the_final_has_the_readings_of_the_beam_in_the_order_of_the_decoder() -> None:
    loaded = rescorable()
    engine = make_engine(loaded, chunk_size=4)
    samples = noise(40_000, 7)
    decoder = AttentionDecoder.from_weights(loaded.settings, loaded.decoder_weights)
    kept = engine._family.runner.decode_windows
    encoded = []

    def listening(rows):
        found = kept(rows)
        encoded.extend(window.encoded for windows in found for window in windows or ())
        return found

    engine._family.runner.decode_windows = listening  # type: ignore[method-assign]

    (beam,) = streamed(engine, [samples], BEAM)
    frames = np.concatenate([part.numpy() for part in encoded])
    (rescored,) = streamed(engine, [samples], RESCORING)

    real = frames[: engine._family.runner.geometry.encoder_frames(len(samples))]
    rows = decoder.log_probs([a.tokens for a in beam.nbest], encoded[0].new_tensor(real))
    scores = {
        a.text: float(row.sum()) + 0.5 * a.score for a, row in zip(beam.nbest, rows, strict=True)
    }
    assert [a.text for a in rescored.nbest] == sorted(scores, key=lambda text: -scores[text])
    assert [a.text for a in rescored.nbest] != [a.text for a in beam.nbest]
    assert [a.score for a in rescored.nbest] == pytest.approx(sorted(scores.values())[::-1])
    assert rescored.text == rescored.nbest[0].text
    assert rescored.tokens == rescored.nbest[0].tokens


def test_partials_are_those_of_the_beam() -> None:
    engine = make_engine(rescorable(), chunk_size=4)
    samples = noise(40_000, 3)

    def partials(options: DecodingOptions) -> list[str]:
        request_id = engine.add_streaming_request(decoding=options)
        engine.feed_chunk(request_id, samples, is_last=True)
        return [output.text for output in engine.run() if not output.finished]

    assert partials(RESCORING) == partials(BEAM) != []


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.integers(0, 50_000), min_size=1, max_size=5),
    st.lists(st.sampled_from([DecodingOptions(), BEAM, RESCORING]), min_size=5, max_size=5),
    st.integers(0, 1 << 20),
)
def test_what_is_heard_does_not_depend_on_the_batch_mates(
    lengths: list[int], mates: list[DecodingOptions], seed: int
) -> None:
    loaded = rescorable()
    engine = make_engine(loaded, chunk_size=4, num_left_chunks=2)
    samples = noise(24_000, seed)
    (alone,) = streamed(engine, [samples], RESCORING)

    request_id = engine.add_streaming_request(decoding=RESCORING)
    engine.feed_chunk(request_id, samples, is_last=True)
    for number, (length, options) in enumerate(zip(lengths, mates, strict=False)):
        mate = engine.add_streaming_request(decoding=options)
        engine.feed_chunk(mate, noise(length, seed + 1 + number), is_last=True)
    found = {o.request_id: o for o in engine.run() if o.finished}

    assert found[request_id].text == alone.text
    assert [a.tokens for a in found[request_id].nbest] == [a.tokens for a in alone.nbest]
    assert [a.score for a in found[request_id].nbest] == pytest.approx(
        [a.score for a in alone.nbest], abs=1e-3
    )


def test_a_model_without_a_decoder_refuses_at_admission() -> None:
    engine = make_engine(tiny_model())

    with pytest.raises(OptionError) as caught:
        engine.add_streaming_request(decoding=RESCORING)
    assert caught.value.code == "search"
    with pytest.raises(OptionError):
        engine.add_request(Request(noise(8000, 1), decoding=RESCORING))


@pytest.mark.parametrize("answer", [RuntimeError, float("nan")])
def test_a_request_whose_rescoring_fails_ends_alone(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    utterances = [noise(30_000, 1), noise(12_000, 2), noise(36_000, 3)]
    engine = make_engine(rescorable(), chunk_size=4)
    alone = streamed(engine, utterances, RESCORING)
    log_probs = AttentionDecoder.log_probs

    def failing(
        self: AttentionDecoder, hypotheses: list[Sequence[int]], encoded: Tensor, *rest: bool
    ) -> Tensor:
        found = log_probs(self, hypotheses, encoded, *rest)
        if len(encoded) < 45:  # the one of 12 000 samples
            if answer is RuntimeError:
                raise RuntimeError("no opinion")
            return found * answer
        return found

    monkeypatch.setattr(AttentionDecoder, "log_probs", failing)
    for found in (
        streamed(engine, utterances, RESCORING),
        engine.transcribe(utterances, RESCORING),
    ):
        assert (found[1].finish_reason, found[1].error_stage) == ("error", "decode")
        for index in (0, 2):
            assert found[index].finish_reason == "stop"
    monkeypatch.undo()
    for one, other in zip(alone, streamed(engine, utterances, RESCORING), strict=True):
        assert one.text == other.text


def test_who_goes_on_for_too_long_keeps_the_order_of_the_beam() -> None:
    engine = make_engine(rescorable(), chunk_size=16, num_left_chunks=1)
    samples = noise((MOST_FRAMES + 60) * 640, 5)

    (beam,) = streamed(engine, [samples], BEAM)
    request_id = engine.add_streaming_request(decoding=RESCORING)
    engine.feed_chunk(request_id, samples[:-1])
    engine.run()
    decoder = engine._scheduler.find_request(request_id).stream_context.decoder  # type: ignore[union-attr]
    assert decoder.is_too_long
    assert decoder._frames == []
    engine.feed_chunk(request_id, samples[-1:], is_last=True)
    (rescored,) = (output for output in engine.run() if output.finished)

    assert rescored.text == beam.text
    assert rescored.nbest == beam.nbest
