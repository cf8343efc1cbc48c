import numpy as np
import pytest

from oasr.audio.segmenter import Audio, Cut, EndReason, Opened, Segmenter, SegmenterConfig
from tests.support.segments import hear
from tests.support.signals import hum, join, mix, noise, silence, speech

RATE = 8000
FRAME = 80
MS = RATE // 1000
SHORT = SegmenterConfig(
    max_utterance_ms=3000, quiet_search_ms=1000, no_speech_ms=1000, pre_roll_ms=200
)


def word(seconds=0.5, dbfs=-20.0):
    """A tone with sharp edges, so that its first and last frames are certain."""
    time_s = np.arange(round(seconds * RATE)) / RATE
    wave = np.sin(2 * np.pi * 500 * time_s) * np.sqrt(2) * 32768 * 10 ** (dbfs / 20)
    return np.rint(wave).astype(np.int16)


def click(at, total_seconds, samples=8):
    signal = silence(total_seconds)
    signal[at : at + samples] = 30_000
    return signal


def test_silence_is_cut_every_no_speech_period_less_the_pre_roll():
    heard = hear(silence(6), end=None)

    assert heard.marks == [
        Cut(13_600 * n, EndReason.NO_SPEECH, None, 13_600 * (n - 1) + 16_000) for n in (1, 2, 3)
    ]


def test_a_word_is_a_segment_from_its_pre_roll_to_a_pre_roll_before_the_decision():
    onset, end = 8000, 12_000
    heard = hear(join(silence(1), word(), silence(1)), end=None)

    decided = end + 800 * MS + 2 * FRAME  # the last loud frames stay in the majority for two more
    assert heard.marks == [
        Opened(onset - 300 * MS),
        Cut(decided - 300 * MS, EndReason.SILENCE, onset - 300 * MS, decided),
    ]


def test_a_segment_gets_its_audio_up_to_the_deciding_sample():
    samples = join(silence(1), word(), silence(3))
    heard = hear(samples)

    cut = heard.cuts[0]
    assert np.array_equal(heard.audio[cut.start_sample], samples[cut.start_sample : cut.decided_at])


def test_audio_of_an_open_segment_comes_with_every_feed():
    segmenter = Segmenter(RATE, 0, SegmenterConfig())
    segmenter.feed(join(silence(0.5), word(0.3)))
    assert segmenter.segment_start == 1600

    events = segmenter.feed(word(0.1))

    assert [type(event) for event in events] == [Audio]
    assert len(events[0].samples) == 800


def test_a_word_at_the_first_sample_starts_there():
    heard = hear(join(word(), silence(2)), end=None)

    assert heard.marks[0] == Opened(0)


@pytest.mark.parametrize("dbfs", [-12, -25, -35, -45])
def test_a_signal_that_begins_inside_speech_loses_none_of_it(dbfs):
    heard = hear(join(speech(2, dbfs=dbfs), silence(2)), end=None)

    assert heard.segments[0][0] == 0
    assert heard.segments[0][1] >= 2 * RATE


def test_a_word_right_after_an_endpoint_keeps_its_whole_pre_roll():
    samples = join(silence(1), word(), silence(0.82), word(), silence(2))
    heard = hear(samples, end=None)

    decided = 18_560
    assert heard.cuts[0].decided_at == decided
    assert heard.marks[2] == Opened(decided - 300 * MS)


def test_a_pre_roll_never_reaches_behind_the_last_cut():
    segmenter = Segmenter(RATE, 0, SegmenterConfig())
    segmenter.feed(silence(1))
    segmenter.cut_at_end(EndReason.FLUSH)

    assert segmenter.feed(join(silence(0.1), word()))[0] == Opened(8000)


def test_a_pause_shorter_than_the_endpoint_splits_nothing():
    heard = hear(join(silence(1), word(), silence(0.7), word(), silence(2)), end=None)

    assert len(heard.segments) == 1


def test_a_pause_longer_than_the_endpoint_splits():
    heard = hear(join(silence(1), *[word(), silence(1.2)] * 10), end=None)

    assert len(heard.segments) == 10


@pytest.mark.parametrize("background", [noise, hum])
@pytest.mark.parametrize("dbfs", [-60, -50, -40])
def test_steady_background_opens_nothing(background, dbfs):
    heard = hear(background(20, dbfs=dbfs))

    assert heard.segments == []


@pytest.mark.parametrize("background", [noise, hum])
@pytest.mark.parametrize("dbfs", [-60, -50, -40])
def test_speech_is_found_above_steady_background(background, dbfs):
    clean = join(silence(3), speech(3, dbfs=-25), silence(3))
    heard = hear(mix(clean, background(9, dbfs=dbfs)))

    assert len(heard.segments) == 1
    start, cut = heard.segments[0]
    assert 2.5 * RATE <= start <= 2.9 * RATE
    assert 6 * RATE <= cut <= 7 * RATE


@pytest.mark.parametrize("offset", [-3000, 500, 8000])
def test_a_constant_offset_changes_nothing(offset):
    samples = join(silence(3), speech(2, dbfs=-25), silence(3))

    assert hear(samples + np.int16(offset)).marks == hear(samples).marks


def test_idle_noise_of_a_mulaw_line_is_silence():
    levels = np.random.default_rng(0).choice([-8, 0, 8], 30 * RATE).astype(np.int16)

    assert hear(levels).segments == []


@pytest.mark.parametrize("at", [8000, 8036, 8076])
def test_a_click_opens_nothing(at):
    assert hear(click(at, 5)).segments == []
    assert hear(click(at, 5, samples=FRAME)).segments == []


def test_clicks_in_the_pause_do_not_hold_a_segment_open():
    pause = silence(1.2)
    pause[1600:1608] = pause[4000:4008] = 30_000

    with_clicks = hear(join(silence(1), word(), pause), end=None)

    assert with_clicks.cuts == hear(join(silence(1), word(), silence(1.2)), end=None).cuts


def test_a_rise_of_the_background_is_forgotten_within_seconds():
    heard = hear(join(noise(3, dbfs=-65), noise(30, dbfs=-42, seed=1)))

    assert len(heard.segments) <= 1
    assert all(cut - start < 7 * RATE for start, cut in heard.segments)


def test_speech_without_a_pause_is_cut_at_its_longest_quiet_run():
    samples = join(
        word(2.2), silence(0.1), word(0.2), silence(0.3), word(0.15), silence(0.05), word(2)
    )
    heard = hear(samples, config=SHORT, end=None)

    cut = heard.cuts[0]
    assert (cut.reason, cut.start_sample, cut.decided_at) == (EndReason.MAX_LENGTH, 0, 24_000)
    assert cut.sample == round(2.8 * RATE) - 100 * MS
    assert heard.segments[1:] == []
    assert heard.marks[2] == Opened(cut.sample)
    assert np.array_equal(heard.audio[0], samples[:24_000])
    assert np.array_equal(heard.audio[cut.sample], samples[cut.sample :])


def test_speech_without_a_quiet_frame_is_cut_at_the_quietest():
    loud = word(4)
    loud[20_000:20_080] //= 2

    cut = hear(loud, config=SHORT, end=None).cuts[0]

    assert cut == Cut(20_000, EndReason.MAX_LENGTH, 0, 24_000)


def test_half_an_hour_without_a_pause_is_cut_into_segments_of_the_greatest_length():
    music = np.tile(speech(60, dbfs=-15), 30)

    heard = hear(music)

    lengths = [cut.decided_at - cut.start_sample for cut in heard.cuts]
    assert set(lengths[:-1]) == {20 * RATE}
    assert all(cut - start >= 15 * RATE for start, cut in heard.segments[:-1])


@pytest.mark.parametrize("reason", [r for r in EndReason if r is not EndReason.NO_SPEECH])
def test_a_forced_cut_ends_the_open_segment_at_the_last_sample(reason):
    samples = join(silence(1), word(), silence(0.1))[:-33]
    heard = hear(samples, end=reason)

    assert heard.cuts == [Cut(len(samples), reason, 5600, len(samples))]
    assert np.array_equal(heard.audio[5600], samples[5600:])


@pytest.mark.parametrize("length_ms", [7, 10, 20, 30, 39])
def test_a_last_word_too_short_to_open_is_kept_by_a_forced_cut(length_ms):
    samples = join(silence(1), word()[: length_ms * MS])
    heard = hear(samples)

    assert heard.segments == [(8000 - 300 * MS, len(samples))]
    assert np.array_equal(heard.audio[5600], samples[5600:])


def test_a_forced_cut_in_silence_has_no_segment():
    heard = hear(silence(1.003), end=EndReason.IDLE)

    assert heard.marks == [Cut(8024, EndReason.IDLE, None, 8024)]


def test_a_forced_cut_of_an_empty_span_is_a_cut_all_the_same():
    segmenter = Segmenter(RATE, 500, SegmenterConfig())
    segmenter.feed(np.zeros(0, np.int16))

    assert segmenter.cut_at_end(EndReason.FLUSH) == [Cut(500, EndReason.FLUSH, None, 500)]
    assert segmenter.cut_at_end(EndReason.END) == [Cut(500, EndReason.END, None, 500)]


def test_after_a_forced_cut_the_next_span_begins_at_the_next_sample():
    segmenter = Segmenter(RATE, 0, SegmenterConfig())
    segmenter.feed(join(silence(1), word()))
    segmenter.cut_at_end(EndReason.FLUSH)

    assert (segmenter.span_start, segmenter.position, segmenter.segment_start) == (
        12_000,
        12_000,
        None,
    )
    assert segmenter.feed(word(0.1))[0] == Opened(12_000)


def test_without_a_gate_a_segment_opens_at_once_and_silence_ends_nothing():
    config = SegmenterConfig(gate=False)
    samples = silence(45)
    heard = hear(samples, config=config)

    assert heard.marks[0] == Opened(0)
    assert [cut.reason for cut in heard.cuts] == [EndReason.MAX_LENGTH] * 2 + [EndReason.END]
    assert all(cut.start_sample is not None for cut in heard.cuts)
    assert heard.cuts[0].sample == 20 * RATE - 100 * MS


def test_without_a_gate_even_less_than_a_frame_is_a_segment():
    heard = hear(silence(0.005), config=SegmenterConfig(gate=False))

    assert heard.segments == [(0, 40)]
    assert len(heard.audio[0]) == 40


def test_an_endpoint_shorter_than_the_pre_roll_lets_no_word_be_heard_twice():
    config = SegmenterConfig(min_silence_ms=100)
    words = [join(word(0.3), silence(0.4)) for _ in range(8)]

    heard = hear(join(silence(1), *words), config=config, end=None)

    assert len(heard.segments) == 8
    onsets = [8000 + n * 5600 for n in range(8)]
    for onset, (start, cut) in zip(onsets, heard.segments, strict=True):
        assert start <= onset - 50 * MS
        assert cut >= onset + 2400


def test_each_span_asks_for_its_own_settings_once_its_audio_is_there():
    asked = []

    def config_at(sample):
        asked.append(sample)
        return SegmenterConfig(min_silence_ms=800 if sample == 0 else 400)

    segmenter = Segmenter(RATE, 0, config_at)
    assert asked == []
    segmenter.cut_at_end(EndReason.FLUSH)
    assert asked == []
    events = segmenter.feed(join(word(), silence(0.9), word(), silence(2)))

    cuts = [event for event in events if isinstance(event, Cut)]
    assert asked == [0] + [cut.sample for cut in cuts]
    assert cuts[1].decided_at - cuts[0].decided_at < 0.9 * RATE + 4000


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("pre_roll_ms", {"pre_roll_ms": -1}),
        ("min_silence_ms", {"min_silence_ms": 0}),
        ("quiet_search_ms", {"quiet_search_ms": 0}),
        ("no_speech_ms", {"no_speech_ms": 300}),
        ("no_speech_ms", {"pre_roll_ms": 1950}),
        ("max_utterance_ms", {"max_utterance_ms": 5000}),
        (
            "max_utterance_ms",
            {"max_utterance_ms": 3000, "no_speech_ms": 3000, "quiet_search_ms": 500},
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(field, values):
    with pytest.raises(ValueError, match=field):
        SegmenterConfig(**values)


def test_rates_below_a_kilohertz_are_refused():
    with pytest.raises(ValueError, match="rate"):
        Segmenter(999, 0, SegmenterConfig())


@pytest.mark.parametrize("samples", [np.zeros(80, np.float32), np.zeros((80, 2), np.int16)])
def test_only_plain_int16_is_heard(samples):
    with pytest.raises(ValueError, match="1-D int16"):
        Segmenter(RATE, 0, SegmenterConfig()).feed(samples)


def test_the_callers_buffer_may_be_used_again():
    buffer = np.zeros(800, np.int16)
    segmenter = Segmenter(RATE, 0, SegmenterConfig())
    events = []
    samples = join(silence(1), word(), silence(1.5))
    for begin in range(0, len(samples), 800):
        buffer[:] = samples[begin : begin + 800]
        events += segmenter.feed(buffer)
        buffer[:] = 9

    audio = [event.samples for event in events if isinstance(event, Audio)]
    assert np.array_equal(np.concatenate(audio)[:8000], samples[5600:13_600])
