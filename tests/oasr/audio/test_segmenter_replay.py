import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.segmenter import Cut, EndReason, Segmenter, SegmenterConfig
from tests.support.segments import Heard, hear, naive_cuts
from tests.support.signals import conversation

TIGHT = SegmenterConfig(
    pre_roll_ms=200,
    min_silence_ms=300,
    max_utterance_ms=2500,
    no_speech_ms=1000,
    quiet_search_ms=1000,
)
CONFIGS = [
    SegmenterConfig(),
    TIGHT,
    SegmenterConfig(gate=False, max_utterance_ms=3000, quiet_search_ms=1500),
]
SEEDS = st.integers(0, 1000)


def assert_same(heard: Heard, expected: Heard) -> None:
    assert heard.marks == expected.marks
    assert heard.audio.keys() == expected.audio.keys()
    for start, audio in expected.audio.items():
        assert np.array_equal(heard.audio[start], audio)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from(CONFIGS), st.lists(st.integers(0, 9000), max_size=30))
def test_no_split_of_the_audio_changes_anything(seed, config, sizes):
    samples = conversation(12, 8000, seed)

    assert_same(hear(samples, 8000, config, tuple(sizes)), hear(samples, 8000, config))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("rate", [8000, 11_025])
def test_single_samples_give_what_the_whole_gives(config, rate):
    samples = conversation(6, rate, seed=5)

    assert_same(hear(samples, rate, config, (1,) * len(samples)), hear(samples, rate, config))


@settings(deadline=None, max_examples=14)
@given(SEEDS, st.sampled_from([1000, 4000, 8000, 11_025, 16_000, 44_100, 48_000]))
def test_rates_that_are_no_multiple_of_a_hundred_split_as_freely(seed, rate):
    samples = conversation(6, rate, seed)

    pieces = hear(samples, rate, TIGHT, (rate // 50,) * 300)

    assert_same(pieces, hear(samples, rate, TIGHT))


@settings(deadline=None, max_examples=8)
@given(SEEDS, st.sampled_from(CONFIGS))
def test_a_segmenter_begun_at_any_cut_hears_all_that_follows(seed, config):
    samples = conversation(30, 8000, seed)
    whole = hear(samples, 8000, config)

    for number, cut in enumerate(whole.cuts[:-1]):
        again = hear(samples[cut.sample :], 8000, config, start_sample=cut.sample)
        assert again.cuts == whole.cuts[number + 1 :]
        for start, audio in again.audio.items():
            assert np.array_equal(audio, whole.audio[start])


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from(CONFIGS), st.integers(0, 80_000))
def test_what_was_decided_never_depends_on_what_comes_later(seed, config, kept):
    samples = conversation(10, 8000, seed)

    early = hear(samples[:kept], 8000, config, end=None).marks

    assert hear(samples, 8000, config).marks[: len(early)] == early


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from(CONFIGS), st.lists(st.integers(1, 30_000), max_size=8))
def test_spans_tile_the_time_line_and_totals_balance(seed, config, forced):
    samples = conversation(15, 8000, seed)
    segmenter = Segmenter(8000, 1000, config)
    heard = Heard()
    begin = 0
    for size in [*forced, len(samples)]:
        heard.take(segmenter.feed(samples[begin : begin + size]))
        heard.take(segmenter.cut_at_end(EndReason.FLUSH))
        begin = min(begin + size, len(samples))

    span_start, decoded, silent = 1000, 0, 0
    for cut in heard.cuts:
        speech_start = cut.sample if cut.start_sample is None else cut.start_sample
        assert span_start <= speech_start <= cut.sample <= cut.decided_at
        silent += speech_start - span_start
        decoded += cut.sample - speech_start
        if cut.start_sample is not None:
            assert len(heard.audio[cut.start_sample]) == cut.decided_at - cut.start_sample
            assert cut.sample > cut.start_sample
        span_start = cut.sample
    assert span_start == segmenter.span_start == 1000 + len(samples)
    assert decoded + silent == len(samples)


@settings(deadline=None, max_examples=20)
@given(SEEDS, st.sampled_from(CONFIGS[:2]))
def test_the_audio_of_a_segment_is_that_of_the_channel(seed, config):
    samples = conversation(12, 8000, seed)

    for start, audio in hear(samples, 8000, config).audio.items():
        assert np.array_equal(audio, samples[start : start + len(audio)])


@settings(deadline=None, max_examples=6)
@given(SEEDS, st.sampled_from([TIGHT, SegmenterConfig()]), st.sampled_from([1000, 2000]))
def test_cuts_are_those_of_the_rules_worked_out_naively(seed, config, rate):
    samples = conversation(20, rate, seed)

    heard = hear(samples, rate, config, end=None)

    assert heard.cuts == naive_cuts(samples, rate, config)


def test_the_random_signals_hold_every_kind_of_cut():
    reasons = set()
    for seed in range(8):
        reasons |= {cut.reason for cut in hear(conversation(25, 1000, seed), 1000, TIGHT).cuts}

    assert reasons == {
        EndReason.SILENCE,
        EndReason.NO_SPEECH,
        EndReason.MAX_LENGTH,
        EndReason.END,
    }


def test_a_long_call_takes_no_more_memory_than_its_open_span():
    segmenter = Segmenter(8000, 0, SegmenterConfig())
    samples = conversation(60, 8000, seed=2)
    segmenter.feed(samples[:8000])
    tracemalloc.start()

    cuts = 0
    for _ in range(5):
        for begin in range(0, len(samples), 800):
            events = segmenter.feed(samples[begin : begin + 800])
            cuts += sum(isinstance(event, Cut) for event in events)

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cuts > 20
    # Five seconds of int16 twice while they move, and room for numbers.
    assert peak_bytes < 2 * 2 * 8000 * 7 + 50_000
