"""Cuts lose no word and say none twice: real speech, the real segmenter, the bundled model."""

import numpy as np
import pytest

from oasr.audio.gates import Vad
from oasr.audio.segmenter import EndReason, SegmenterConfig
from oasr.decoding.wer import Wer
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from tests.support.segments import hear, naive_cuts
from tests.support.signals import join, mix, noise, silence
from tests.support.testsets import read_list

RATE = 16_000
UNCUT = SegmenterConfig(gate=False)
NO_PAUSE = SegmenterConfig(max_utterance_ms=6_000, no_speech_ms=2_000, min_silence_ms=10_000)


@pytest.fixture(scope="module")
def engine():
    return ASREngine(EngineConfig(max_batch_size=16))


@pytest.fixture(scope="module")
def lists():
    return {name: utterances(name) for name in ("phrases", "human_digits")}


def utterances(name):
    """(text, int16 samples without the silence around them) of each file of a list."""
    found = []
    for samples, text in read_list(name):
        pcm = np.rint(samples * 32767).astype(np.int16)
        frames = pcm[: len(pcm) // 160 * 160].reshape(-1, 160).astype(float).std(axis=1)
        loud = np.flatnonzero(frames > 0.02 * frames.max())
        found.append((text, pcm[loud[0] * 160 : (loud[-1] + 1) * 160]))
    return found


def said(engine, samples, config):
    """The texts of a channel's segments, each decoded as the worker does it."""
    heard = hear(samples, RATE, config)
    names = {}
    for cut in heard.cuts:
        if cut.start_sample is not None:
            keep = cut.sample - cut.start_sample if cut.reason is EndReason.MAX_LENGTH else None
            name = engine.add_streaming_request()
            audio = heard.audio[cut.start_sample].astype(np.float32) / 32768
            engine.feed_chunk(name, audio, is_last=True, keep_samples=keep)
            names[name] = ""
    names |= {output.request_id: output.text for output in engine.run() if output.finished}
    return list(names.values()), [cut for cut in heard.cuts if cut.start_sample is not None]


def over_line_noise(*parts):
    samples = join(silence(1, RATE), *parts, silence(2, RATE))
    return mix(samples, noise(len(samples) / RATE, RATE, -60))


def twins(lists, engine):
    """Digit strings of which one ends with the word that the other begins with; both are heard."""
    known = [(text, s) for text, s in lists["human_digits"] if s.size < 3 * RATE]
    for word in ("nine", "two", "seven", "six"):
        last = [item for item in known if item[0].endswith(word)]
        first = [item for item in known if item[0].startswith(word)]
        for one, other in zip(last, first, strict=False):
            texts, _ = said(
                engine, over_line_noise(one[1], silence(1.5, RATE), other[1]), SegmenterConfig()
            )
            if texts == [one[0], other[0]]:
                return word, one, other
    raise AssertionError("no two digit strings are heard")


def test_the_same_word_on_both_sides_of_a_cut_is_said_twice(engine, lists):
    word, one, other = twins(lists, engine)
    assert one[0].split()[-1] == other[0].split()[0] == word

    # so close that only the maximum length cuts between them
    samples = over_line_noise(one[1], silence(0.4, RATE), other[1])
    longest_ms = (one[1].size + other[1].size // 2) * 1000 // RATE // 10 * 10 + 400
    config = SegmenterConfig(
        max_utterance_ms=longest_ms, no_speech_ms=1_500, quiet_search_ms=1_000, min_silence_ms=2_000
    )
    texts, cuts = said(engine, samples, config)

    assert cuts[0].reason is EndReason.MAX_LENGTH
    assert RATE + one[1].size <= cuts[0].sample <= RATE + one[1].size + 0.4 * RATE
    assert " ".join(texts) == f"{one[0]} {other[0]}"


@pytest.mark.parametrize("vad", Vad)
def test_ten_utterances_with_pauses_are_ten_finals_with_all_their_words(engine, lists, vad):
    chosen = lists["phrases"][:10]
    parts = [part for _, samples in chosen for part in (samples, silence(1.5, RATE))]

    texts, cuts = said(engine, over_line_noise(*parts), SegmenterConfig(vad=vad))

    assert [cut.reason for cut in cuts] == [EndReason.SILENCE] * 10
    together, alone = Wer(), Wer()
    for (text, samples), heard in zip(chosen, texts, strict=True):
        together.add(text, heard)
        (single,), _ = said(engine, over_line_noise(samples), UNCUT)
        alone.add(text, single)
    assert together.words > 50
    assert together.deletions <= alone.deletions
    assert together.errors <= alone.errors + 2


def test_forced_cuts_cost_no_more_words_than_the_model_does(engine, lists):
    chosen = [*lists["phrases"][10:22], *lists["human_digits"][:8]]
    parts = [part for _, samples in chosen for part in (samples, silence(0.2, RATE))]
    reference = " ".join(text for text, _ in chosen)

    texts, cuts = said(engine, over_line_noise(*parts), NO_PAUSE)

    forced = sum(cut.reason is EndReason.MAX_LENGTH for cut in cuts)
    assert forced >= 8
    cut, alone = Wer(), Wer()
    cut.add(reference, " ".join(texts))
    for text, samples in chosen:
        (single,), _ = said(engine, over_line_noise(samples), UNCUT)
        alone.add(text, single)
    # a word lost or said twice at every second cut would show
    assert cut.errors <= alone.errors + forced // 2


def test_cuts_of_real_speech_fall_where_the_rules_say(lists):
    parts = [
        part for _, samples in lists["phrases"][30:42] for part in (samples[::2], silence(0.1))
    ]
    samples = mix(join(*parts), noise(sum(map(len, parts)) / 8000, 8000, -55))

    heard = hear(samples, 8000, NO_PAUSE, end=None)

    assert {cut.reason for cut in heard.cuts} >= {EndReason.MAX_LENGTH}
    assert heard.cuts == naive_cuts(samples, 8000, NO_PAUSE)
