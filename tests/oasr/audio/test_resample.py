import numpy as np
import pytest
import torch
import torchaudio
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.resample import MODEL_RATE, Resampler

RATES = [8000, 11025, 16000, 22050, 32000, 44100, 48000]


def tones(rate: int, seconds: float, top_hz: float) -> np.ndarray:
    """A sum of sines below `top_hz` and below the Nyquist rate of `rate`, int16."""
    time_s = np.arange(int(rate * seconds)) / rate
    wave = sum(
        np.sin(2 * np.pi * hz * time_s + hz) for hz in (110, 437, 1234, 2900, 6100) if hz < top_hz
    )
    return np.rint(6000 * wave).astype(np.int16)


def resampled(samples: np.ndarray, rate: int, *sizes: int, to_rate: int = MODEL_RATE) -> np.ndarray:
    resampler = Resampler(rate, to_rate)
    parts, begin = [], 0
    for size in (*sizes, len(samples)):
        parts.append(resampler.push(samples[begin : begin + size]))
        begin = min(begin + size, len(samples))
    return np.concatenate([*parts, resampler.flush()])


@pytest.mark.parametrize("rate", RATES)
def test_the_signal_is_that_of_an_independent_resampler(rate):
    samples = tones(rate, 1.0, top_hz=min(rate, MODEL_RATE) * 0.42)

    ours = resampled(samples, rate)

    reference = torchaudio.functional.resample(
        torch.from_numpy(samples.astype(np.float32) / 32768),
        rate,
        MODEL_RATE,
        lowpass_filter_width=64,
        rolloff=0.95,
    ).numpy()
    inner = slice(800, len(ours) - 800)  # the two treat the edges differently
    noise = ours[inner] - reference[inner]
    snr_db = 10 * np.log10((reference[inner] ** 2).mean() / max((noise**2).mean(), 1e-20))
    assert snr_db > 60


def test_tones_above_the_new_nyquist_rate_vanish():
    time_s = np.arange(48_000) / 48_000
    samples = np.rint(20_000 * np.sin(2 * np.pi * 11_000 * time_s)).astype(np.int16)

    out = resampled(samples, 48_000)

    assert np.abs(out[800:-800]).max() < 1e-3


@pytest.mark.parametrize("rate", [*RATES, 1000, 15_999, 96_000, 192_000])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 50, 399, 8001])
def test_the_length_is_exact(rate, size):
    samples = np.full(size, 1000, np.int16)

    out = resampled(samples, rate, size // 3)

    assert out.dtype == np.float32
    assert len(out) == round(size * MODEL_RATE / rate)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(RATES), st.lists(st.integers(0, 700), max_size=12))
def test_values_do_not_depend_on_the_split(rate, sizes):
    samples = np.random.default_rng(7).integers(-30_000, 30_000, 4001).astype(np.int16)

    assert np.array_equal(resampled(samples, rate, *sizes), resampled(samples, rate))


def test_single_samples_give_the_same_values_as_the_whole():
    samples = np.random.default_rng(8).integers(-30_000, 30_000, 900).astype(np.int16)

    assert np.array_equal(resampled(samples, 8000, *[1] * 900), resampled(samples, 8000))


def test_no_more_comes_out_than_went_in():
    resampler = Resampler(8000)
    samples_in = samples_out = 0
    for size in [1, 7, 80, 160, 800, 3, 0, 4000]:
        samples_in += size
        samples_out += len(resampler.push(np.ones(size, np.int16)))
        assert samples_out <= 2 * samples_in

    assert samples_out + len(resampler.flush()) == 2 * samples_in


@pytest.mark.parametrize("rate", RATES)
def test_what_is_held_back_is_short(rate):
    resampler = Resampler(rate)
    step, samples_out, most_held = rate // 50, 0, 0
    for count in range(1, 200):
        samples_out += len(resampler.push(np.ones(step, np.int16)))
        most_held = max(most_held, count * step * MODEL_RATE // rate - samples_out)

    assert most_held <= MODEL_RATE * 130 // 1000


def test_equal_rates_pass_the_samples_through():
    samples = np.array([-32768, -1, 0, 1, 32767], np.int16)

    assert resampled(samples, 16_000, 2).tolist() == [
        -1.0,
        -1 / 32768,
        0.0,
        1 / 32768,
        32767 / 32768,
    ]


def test_a_flushed_resampler_takes_no_more():
    resampler = Resampler(8000)
    resampler.push(np.zeros(80, np.int16))
    resampler.flush()

    assert len(resampler.flush()) == 0
    with pytest.raises(ValueError, match="flushed"):
        resampler.push(np.zeros(80, np.int16))


@pytest.mark.parametrize("rates", [(0, 16_000), (8000, 0), (-8000, 16_000)])
def test_rates_must_be_positive(rates):
    with pytest.raises(ValueError, match="rates"):
        Resampler(*rates)


def click_after(rate: int, hours: float, block_s: int, seed: int) -> tuple[int, int]:
    """Where a click comes out after so much silence in random splits, and how much there is.

    It goes in half a second before the end; half a minute goes in as splinters.
    """
    rng = np.random.default_rng(seed)
    samples = int(rate * 3600 * hours)
    click = samples - rate // 2
    resampler = Resampler(rate)
    taken = samples_out = 0
    loudest, peak = 0.0, -1
    while taken < samples:
        near_end = taken > samples - 30 * rate
        size = int(rng.integers(0, rate // 5 if near_end else block_s * rate))
        block = np.zeros(min(size, samples - taken), np.int16)
        if taken <= click < taken + len(block):
            block[click - taken] = 30_000
        taken += len(block)
        ready = resampler.push(block)
        if len(ready) and (top := float(np.abs(ready).max())) > loudest:
            loudest, peak = top, samples_out + int(np.abs(ready).argmax())
        samples_out += len(ready)
    tail = resampler.flush()
    if len(tail) and float(np.abs(tail).max()) > loudest:
        peak = samples_out + int(np.abs(tail).argmax())
    return peak, samples_out + len(tail)


@pytest.mark.parametrize(
    ("rate", "hours"), [(8000, 3), (11025, 3), (22050, 1), (44100, 1), (48000, 1)]
)
def test_the_clock_does_not_drift_over_hours(rate, hours):
    peak, samples_out = click_after(rate, hours, block_s=60, seed=rate)

    assert samples_out == hours * 3600 * MODEL_RATE
    assert abs(peak - round((hours * 3600 - 0.5) * MODEL_RATE)) <= 1


@pytest.mark.parametrize("rate", [8000, 11025, 44100])
def test_speech_passes_unchanged_up_to_nine_tenths_of_its_band(rate):
    top_hz = 0.9 * min(rate, MODEL_RATE) / 2
    for hz in (60, 0.3 * top_hz, 0.7 * top_hz, top_hz):
        time_s = np.arange(rate) / rate
        samples = np.rint(16_000 * np.sin(2 * np.pi * hz * time_s)).astype(np.int16)

        heard = resampled(samples, rate)[4000:12_000].astype(np.float64)

        at_s = np.arange(4000, 12_000) / MODEL_RATE
        expected = 16_000 / 32_768 * np.sin(2 * np.pi * hz * at_s)
        error_db = 10 * np.log10(((heard - expected) ** 2).mean() / (expected**2).mean())
        assert error_db < -55
