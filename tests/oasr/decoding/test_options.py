"""What a request may ask of its decoding, and that the engine hears it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.options import DecodingOptions
from oasr.decoding.words import Word
from oasr.engine.request import Request, RequestOutput
from oasr.errors import OptionError
from tests.support.engine import (
    Samples,
    make_engine,
    noise,
    stream_all,
    terminal,
    tiny_model,
)

TINY = tiny_model()
BEAM = DecodingOptions("prefix_beam", n_best=4, word_times=True, confidences=True)
BAD = {
    "search": DecodingOptions(search="viterbi"),  # type: ignore[arg-type]
    "beam": DecodingOptions("prefix_beam", beam=0),
    "n_best": DecodingOptions("prefix_beam", n_best=0),
}


def stream(audio: Samples, edges: list[int], options: DecodingOptions) -> list[RequestOutput]:
    """Every output of a stream that is fed up to each edge in turn, stepping between."""
    engine = make_engine(TINY, chunk_size=4)
    request_id = engine.add_streaming_request("only", decoding=options)
    outputs: list[RequestOutput] = []
    fed = 0
    for edge in edges:
        engine.feed_chunk(request_id, audio[fed:edge])
        fed = edge
        outputs += engine.run()
    engine.feed_chunk(request_id, audio[fed:], is_last=True)
    return outputs + engine.run()


@pytest.mark.parametrize("name", sorted(BAD))
def test_what_cannot_be_honoured_is_refused_at_admission_by_name(name):
    engine = make_engine(TINY)

    with pytest.raises(OptionError, match=name) as stream_refusal:
        engine.add_streaming_request(decoding=BAD[name])
    with pytest.raises(OptionError, match=name) as refusal:
        engine.add_request(Request(noise(4_000, 1), decoding=BAD[name]))

    assert (stream_refusal.value.code, refusal.value.code) == (name, name)
    assert not engine.has_work


def test_greedy_search_has_one_reading_and_a_beam_not_more_than_its_width():
    with pytest.raises(OptionError, match="greedy"):
        DecodingOptions(n_best=2).check()
    with pytest.raises(OptionError, match=r"at most the beam \(3\)"):
        DecodingOptions("prefix_beam", beam=3, n_best=4).check()
    DecodingOptions("prefix_beam", beam=4, n_best=4).check()


def test_by_default_nothing_is_reported_but_text_and_tokens():
    (output,) = make_engine(TINY).transcribe([noise(30_000, 1)])

    assert output.tokens
    assert (output.confidence, output.words, output.nbest) == (None, (), ())


def test_the_confidence_is_the_mean_posterior_of_the_tokens():
    (output,) = make_engine(TINY).transcribe(
        [noise(30_000, 1)], DecodingOptions(confidences=True, word_times=True)
    )

    assert output.confidence == pytest.approx(np.mean(np.exp(output.scores)))
    # every token of the tiny model is a word
    assert [w.confidence for w in output.words] == pytest.approx(np.exp(output.scores).tolist())


def test_an_utterance_without_a_token_has_no_confidence_rather_than_zero():
    (output,) = make_engine(TINY).transcribe([noise(0, 1)], DecodingOptions(confidences=True))

    assert (output.text, output.confidence, output.words) == ("", None, ())


def figures_of(outputs: list[RequestOutput]) -> list[float]:
    """Every score and confidence of outputs, in order; -1 where there is no confidence."""
    found: list[float | None] = []
    for output in outputs:
        found += [*output.scores, output.confidence, *(w.confidence for w in output.words)]
        for reading in output.nbest:
            found += [reading.score, reading.confidence]
            found += [word.confidence for word in reading.words]
    return [-1.0 if figure is None else figure for figure in found]


def without_figures(output: RequestOutput) -> RequestOutput:
    """The output without scores and confidences, which may depend on the shape of a forward."""

    def plain(words: tuple[Word, ...]) -> tuple[Word, ...]:
        return tuple(replace(word, confidence=None) for word in words)

    return replace(
        output,
        scores=(),
        confidence=None,
        words=plain(output.words),
        nbest=tuple(
            replace(reading, score=0.0, confidence=None, words=plain(reading.words))
            for reading in output.nbest
        ),
    )


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 40_000), max_size=6), st.integers(0, 5))
def test_all_outputs_of_a_beam_are_the_same_however_the_audio_was_split(edges, seed):
    audio = noise(40_000, seed)

    split, whole = stream(audio, sorted(edges), BEAM), stream(audio, [], BEAM)

    assert [without_figures(o) for o in split] == [without_figures(o) for o in whole]
    assert figures_of(split) == pytest.approx(figures_of(whole), abs=1e-4)


def test_methods_and_beams_share_a_batch_and_keep_their_results():
    audio = noise(30_000, 3)
    wanted = [
        DecodingOptions(),
        BEAM,
        DecodingOptions("prefix_beam", beam=3),
        DecodingOptions("prefix_beam", beam=1),
        BEAM,
    ]
    alone = [stream(audio, [], options)[-1] for options in wanted]
    engine = make_engine(TINY, chunk_size=4)
    ids = [engine.add_streaming_request(decoding=options) for options in wanted]
    for request_id in ids:
        engine.feed_chunk(request_id, audio, is_last=True)

    found = terminal(engine.run())

    for request_id, expected in zip(ids, alone, strict=True):
        assert found[request_id].tokens == expected.tokens
        assert found[request_id].token_frames == expected.token_frames
        assert [a.text for a in found[request_id].nbest] == [a.text for a in expected.nbest]


def test_streams_and_whole_utterances_under_the_same_mask_have_the_same_readings():
    audios = [noise(n, n) for n in (0, 100, 9_000, 30_000)]
    engine = make_engine(TINY, chunk_size=4, offline_chunk_size=4)
    ids = [engine.add_streaming_request(decoding=BEAM) for _ in audios]
    for request_id, audio in zip(ids, audios, strict=True):
        engine.feed_chunk(request_id, audio, is_last=True)
    streamed = terminal(engine.run())

    whole = engine.transcribe(audios, BEAM)

    for request_id, output in zip(ids, whole, strict=True):
        other = streamed[request_id]
        assert (other.text, other.token_frames) == (output.text, output.token_frames)
        assert [a.text for a in other.nbest] == [a.text for a in output.nbest]
        assert [a.score for a in other.nbest] == pytest.approx(
            [a.score for a in output.nbest], abs=1e-3
        )


def test_alternatives_are_different_texts_and_the_first_is_the_result():
    (output,) = make_engine(TINY).transcribe([noise(40_000, 2)], BEAM)
    first, *others = output.nbest

    assert (first.text, first.tokens, first.words) == (output.text, output.tokens, output.words)
    assert first.confidence == output.confidence
    assert others
    assert len({a.text for a in output.nbest}) == len(output.nbest) <= 4
    assert [a.score for a in output.nbest] == sorted((a.score for a in output.nbest), reverse=True)
    assert all(0.0 < math.exp(a.score) < 1.0 for a in output.nbest)


def test_words_beyond_the_samples_that_a_segment_keeps_are_dropped_from_every_reading():
    engine = make_engine(TINY)
    audio = noise(40_000, 2)
    request_id = engine.add_streaming_request(decoding=BEAM)
    engine.feed_chunk(request_id, audio, is_last=True, keep_samples=20_000)

    output = terminal(engine.run())[request_id]

    whole = engine.transcribe([audio], BEAM)[0]
    assert 0 < len(output.tokens) < len(whole.tokens)
    for reading in (output, *output.nbest):
        assert " ".join(w.text for w in reading.words) == reading.text
        assert all(w.start_sample <= w.end_sample <= 20_000 for w in reading.words)


def test_a_beam_of_greedy_streams_changes_nothing_for_its_mates():
    audios = [noise(20_000, seed) for seed in range(3)]
    expected = stream_all(make_engine(TINY), audios)
    engine = make_engine(TINY)
    engine.add_streaming_request("beam", decoding=BEAM)
    ids = [engine.add_streaming_request() for _ in audios]
    for request_id, audio in zip(["beam", *ids], [audios[0], *audios], strict=True):
        engine.feed_chunk(request_id, audio, is_last=True)

    found = terminal(engine.run())

    assert [found[i].tokens for i in ids] == [o.tokens for o in expected]
    assert found["beam"].nbest


def test_a_beam_that_raises_ends_alone():
    engine = make_engine(TINY)
    ids = [engine.add_streaming_request(decoding=BEAM) for _ in range(2)]
    engine.step()
    engine._scheduler.find_request(ids[0]).stream_context.decoder.beam = None
    for request_id in ids:
        engine.feed_chunk(request_id, noise(20_000, 1), is_last=True)

    found = terminal(engine.run())

    assert found[ids[0]].error_stage == "decode"
    assert found[ids[1]].finish_reason == "stop"
    assert found[ids[1]].nbest
