import pytest

from oasr.engine.geometry import WindowGeometry


def make_geometry(chunk: int = 16, padding_ms: int = 500) -> WindowGeometry:
    return WindowGeometry(chunk, 4, 6, padding_ms)


def windows_by_loop(samples: int, chunk: int) -> int:
    """WeNet's loop over the feature frames, written out, whole windows only."""
    frames = 1 + (samples - 400) // 160 if samples >= 400 else 0
    window, stride = (chunk - 1) * 4 + 7, 4 * chunk
    return sum(1 for start in range(0, frames, stride) if start + window <= frames)


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_full_windows_are_those_of_the_loop(chunk):
    geometry = make_geometry(chunk)

    for samples in range(0, 60_000, 37):
        assert geometry.full_windows(samples) == windows_by_loop(samples, chunk)


def test_a_window_of_sixteen_frames_is_67_feature_frames_every_64():
    geometry = make_geometry()

    assert (geometry.window_frames, geometry.stride_frames) == (67, 64)
    assert geometry.samples_end(1) == 66 * 160 + 400
    assert geometry.samples_end(2) - geometry.samples_end(1) == 10_240


@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_the_final_silence_is_long_enough_and_ends_with_a_window(chunk):
    geometry = make_geometry(chunk)

    for samples in [1, 399, 400, 1199, 10_239, 10_240, 10_241, 10_959, 10_960, 160_000]:
        padded = geometry.padded_samples(samples)
        windows = geometry.final_windows(samples)
        assert geometry.full_windows(padded) == windows
        assert geometry.full_windows(padded - 1) == windows - 1
        decoded = windows * chunk * 640
        assert 8_000 <= decoded - samples < 8_000 + chunk * 640


def test_a_stream_without_audio_has_no_window():
    assert make_geometry().final_windows(0) == 0
    assert make_geometry().padded_samples(0) == 0


def test_no_padding_still_gives_the_last_sample_a_window():
    assert make_geometry(padding_ms=0).final_windows(1) == 1
