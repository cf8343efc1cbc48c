"""What holds of cuts holds whichever gate tells speech from background."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.gates import Vad
from oasr.audio.segmenter import Cut, EndReason, Segmenter, SegmenterConfig
from tests.support.segments import Heard, hear
from tests.support.signals import hum, join, noise, silence
from tests.support.talk import talk

CONFIGS = [
    config
    for vad in Vad
    for config in (
        SegmenterConfig(vad=vad),
        SegmenterConfig(
            pre_roll_ms=200,
            min_silence_ms=250,
            max_utterance_ms=2500,
            no_speech_ms=1000,
            quiet_search_ms=1000,
            vad=vad,
        ),
    )
]
SEEDS = st.integers(0, 1000)
RATES = st.sampled_from([4000, 8000, 11_025, 16_000, 44_100])
EXAMPLES = settings(deadline=None, max_examples=8)


def assert_same(heard: Heard, expected: Heard) -> None:
    assert heard.marks == expected.marks
    for start, audio in expected.audio.items():
        assert np.array_equal(heard.audio[start], audio)


@EXAMPLES
@given(SEEDS, RATES, st.sampled_from(CONFIGS), st.lists(st.integers(0, 9000), max_size=20))
def test_no_split_of_the_audio_changes_anything(seed, rate, config, sizes):
    samples = talk(6, rate, seed)

    assert_same(hear(samples, rate, config, tuple(sizes)), hear(samples, rate, config))


@pytest.mark.parametrize("config", CONFIGS[1::2], ids=lambda config: config.vad)
def test_single_samples_give_what_the_whole_gives(config):
    samples = talk(3, 8000, seed=4)

    assert_same(hear(samples, 8000, config, (1,) * len(samples)), hear(samples, 8000, config))


@EXAMPLES
@given(SEEDS, RATES, st.sampled_from(CONFIGS))
def test_a_segmenter_begun_at_any_cut_hears_all_that_follows(seed, rate, config):
    samples = talk(8, rate, seed)
    whole = hear(samples, rate, config)

    for number, cut in enumerate(whole.cuts[:-1]):
        again = hear(samples[cut.sample :], rate, config, start_sample=cut.sample)
        assert again.cuts == whole.cuts[number + 1 :]
        for start, audio in again.audio.items():
            assert np.array_equal(audio, whole.audio[start])


@EXAMPLES
@given(SEEDS, st.sampled_from(CONFIGS), st.integers(0, 64_000))
def test_what_was_decided_never_depends_on_what_comes_later(seed, config, kept):
    samples = talk(8, 8000, seed)

    early = hear(samples[:kept], 8000, config, end=None).marks

    assert hear(samples, 8000, config).marks[: len(early)] == early


@EXAMPLES
@given(SEEDS, st.sampled_from(CONFIGS), st.lists(st.integers(1, 30_000), max_size=5))
def test_spans_tile_the_time_line(seed, config, forced):
    samples = talk(8, 8000, seed)
    segmenter = Segmenter(8000, 1000, config)
    heard = Heard()
    begin = 0
    for size in [*forced, len(samples)]:
        heard.take(segmenter.feed(samples[begin : begin + size]))
        heard.take(segmenter.cut_at_end(EndReason.FLUSH))
        begin = min(begin + size, len(samples))

    span_start = 1000
    for cut in heard.cuts:
        start = cut.sample if cut.start_sample is None else cut.start_sample
        assert span_start <= start <= cut.sample <= cut.decided_at
        span_start = cut.sample
    assert span_start == 1000 + len(samples)


@pytest.mark.parametrize("vad", Vad)
def test_the_talk_holds_every_kind_of_cut(vad):
    config = next(c for c in CONFIGS[1::2] if c.vad is vad)

    reasons = {c.reason for seed in range(4) for c in hear(talk(12, 8000, seed), 8000, config).cuts}

    assert reasons == {
        EndReason.SILENCE,
        EndReason.NO_SPEECH,
        EndReason.MAX_LENGTH,
        EndReason.END,
    }


@pytest.mark.parametrize("vad", Vad)
def test_channels_that_take_turns_are_cut_as_if_alone(vad):
    config = SegmenterConfig(vad=vad)
    channels = [talk(8, 8000, seed) for seed in range(3)]
    segmenters = [Segmenter(8000, 0, config) for _ in channels]
    heard = [Heard() for _ in channels]
    for begin in range(0, 64_000, 800):
        for segmenter, samples, marks in zip(segmenters, channels, heard, strict=True):
            marks.take(segmenter.feed(samples[begin : begin + 800]))

    for samples, marks in zip(channels, heard, strict=True):
        assert marks.marks == hear(samples, 8000, config, end=None).marks


@pytest.mark.parametrize("vad", Vad)
@pytest.mark.parametrize("background", [noise, hum])
def test_steady_background_opens_nothing(vad, background):
    heard = hear(background(8, dbfs=-45), config=SegmenterConfig(vad=vad))

    assert heard.segments == []


def test_the_trained_vad_takes_bursts_of_noise_for_what_they_are():
    bursts = join(
        *(part for n in range(6) for part in (silence(1.2), noise(0.4, dbfs=-30, seed=n)))
    )

    assert len(hear(bursts).segments) >= 5
    assert hear(bursts, config=SegmenterConfig(vad=Vad.SILERO)).segments == []


def test_without_a_gate_no_vad_is_asked(monkeypatch):
    monkeypatch.setattr("oasr.audio.voice_gate.VoiceActivity", None)

    heard = hear(silence(3), config=SegmenterConfig(gate=False, vad=Vad.SILERO))

    assert heard.cuts == [Cut(24_000, EndReason.END, 0, 24_000)]
