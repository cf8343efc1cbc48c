"""Biasing against a count of the phrases in the text, and its effect on a beam."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.ctc_prefix_beam import PrefixBeamDecoder, top_tokens
from oasr.decoding.hotwords import HotwordContext, can_spell
from oasr.decoding.options import DecodingOptions, Hotword
from oasr.decoding.tokenizer import Tokenizer
from oasr.engine.engine import ASREngine
from oasr.engine.request import Request, RequestOutput
from oasr.errors import OptionError
from tests.support.engine import Samples, make_engine, noise, terminal, tiny_model
from tests.support.prefix_beam import BLANK, every_reading

PIECES = ["<blank>", "▁", "a", "b", "▁a", "▁b", "▁ab", "ba", "▁a▁b"]
TOKENIZER = Tokenizer(PIECES)
words = st.sampled_from(["a", "b", "ab", "ba", "aba"])
phrases = st.lists(words, min_size=1, max_size=3).map(" ".join)
boosts = st.integers(1, 80).map(lambda n: n / 8)  # sums are exact


def occurrences(phrase: str, text: str) -> int:
    wanted, spoken = phrase.split(), text.split()
    starts = range(len(spoken) - len(wanted) + 1)
    return sum(spoken[i : i + len(wanted)] == wanted for i in starts)


def earned(hotwords: list[Hotword], text: str) -> float:
    """What a finished text is worth: every occurrence of every phrase, its boost for each word."""
    return sum(h.boost * len(h.phrase.split()) * occurrences(h.phrase, text) for h in hotwords)


def gained(context: HotwordContext, tokens: list[int]) -> float:
    state, total = np.zeros(1, np.int64), 0.0
    for token in tokens:
        states, gains = context.extend(state, np.array([token]))
        state, total = states[0], total + float(gains[0, 0])
    return total - float(context.unfinished(state)[0])


def none_begins_another(found: dict[str, float]) -> bool:
    return not any(a != b and b.startswith(a) for a in found for b in found)


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(phrases, boosts, min_size=1, max_size=4).filter(none_begins_another),
    st.lists(st.integers(1, len(PIECES) - 1), max_size=14),
)
def test_a_finished_reading_has_gained_what_its_phrases_are_worth(chosen, tokens):
    hotwords = [Hotword(phrase, boost) for phrase, boost in chosen.items()]
    text = TOKENIZER.decode(tokens)
    # Pieces that do not begin with a mark make a first word that no phrase can match.
    spoken = text if PIECES[tokens[0] if tokens else 0].startswith("▁") else f"-{text}"

    total = gained(HotwordContext(hotwords, TOKENIZER), tokens)

    assert total == pytest.approx(earned(hotwords, spoken))


def test_of_phrases_that_begin_alike_the_longest_that_was_said_counts():
    context = HotwordContext([Hotword("a", 2.0), Hotword("a b", 3.0)], TOKENIZER)

    assert gained(context, [4]) == pytest.approx(2.0)
    assert gained(context, [4, 5]) == pytest.approx(6.0)
    assert gained(context, [4, 4]) == pytest.approx(4.0)
    assert gained(context, [4, 5, 3]) == pytest.approx(2.0)  # "a bb"


def test_an_unfinished_phrase_leads_for_now_and_earns_nothing():
    context = HotwordContext([Hotword("ab", 3.0)], TOKENIZER)

    states, gains = context.extend(np.zeros(1, np.int64), np.array([4]))

    assert gains[0, 0] == pytest.approx(2.0)  # two characters of three
    assert context.unfinished(states[0]) == pytest.approx([2.0])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1 << 30), st.integers(1, 4), boosts)
def test_an_unpruned_beam_ranks_readings_by_probability_and_phrases(seed, frames, boost):
    rng = np.random.default_rng(seed)
    pieces = ["<blank>", "▁a", "b", "▁b"]
    logits = torch.from_numpy(rng.standard_normal((frames, len(pieces))))
    log_probs = logits.log_softmax(-1).float()
    tokenizer = Tokenizer(pieces)
    hotwords = [Hotword("ab", boost), Hotword("b a", boost)]
    decoder = PrefixBeamDecoder(BLANK, 4, 4**frames + 1, HotwordContext(hotwords, tokenizer))
    expected = {}
    for reading in every_reading(log_probs.numpy()):
        text = tokenizer.decode(reading.tokens)
        spoken = f"-{text}" if reading.tokens[:1] == (2,) else text
        expected[reading.tokens] = reading.score + earned(hotwords, spoken)

    decoder.update(top_tokens(log_probs, 4), 0)

    found = decoder.hypotheses(4**frames)
    assert {h.tokens: h.score for h in found} == pytest.approx(expected)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    assert tuple(decoder.tokens) == found[0].tokens


def test_what_cannot_be_written_with_the_tokens_is_refused_by_name():
    assert can_spell("ab  ba a", TOKENIZER)
    assert not can_spell("abc", TOKENIZER)
    assert not can_spell(" ", TOKENIZER)
    engine = make_engine(tiny_model())
    for bad in (Hotword("no such word"), Hotword("w1", 0.0), Hotword("w1", 21.0)):
        with pytest.raises(OptionError) as refusal:
            engine.add_request(
                Request(noise(4_000, 1), decoding=DecodingOptions("prefix_beam", hotwords=(bad,)))
            )
        assert refusal.value.code == "hotwords"
    with pytest.raises(OptionError, match="greedy"):
        engine.add_streaming_request(decoding=DecodingOptions(hotwords=(Hotword("w1"),)))


def test_a_boosted_phrase_wins_where_it_was_nearly_heard_and_mates_are_left_alone():
    engine = make_engine(tiny_model())
    audio = noise(30_000, 2)
    plain = DecodingOptions("prefix_beam", n_best=10)
    best, *others = stream_all(engine, [audio], plain)[0].nbest
    rival = next(other for other in others if other.text not in best.text)
    biased = DecodingOptions("prefix_beam", hotwords=(Hotword(rival.text, 2.0),))

    first, second, third = stream_all(engine, [audio] * 3, plain, biased, plain)

    assert rival.text in second.text
    assert first.text == third.text == best.text


def stream_all(
    engine: ASREngine, audios: list[Samples], *options: DecodingOptions
) -> list[RequestOutput]:
    ids = [engine.add_streaming_request(decoding=wanted) for wanted in options]
    for request_id, audio in zip(ids, audios, strict=True):
        engine.feed_chunk(request_id, audio, is_last=True)
    found = terminal(engine.run())
    return [found[request_id] for request_id in ids]
