"""Audio that is declared as something else is noticed, and rightly declared audio never is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio import g711, pcm
from oasr.audio.pcm import Encoding
from oasr.audio.plausibility import HEARD_SAMPLES, LEAST_SAMPLES, EncodingCheck, likely_encoding
from oasr.audio.segmenter import Audio, Cut, EndReason, Segmenter, SegmenterConfig

DATA = Path(__file__).parents[2] / "data"
FILES = sorted([*DATA.glob("calls/*.wav"), *DATA.glob("recordings/*")])
SOUNDS = [path for path in FILES if path.suffix in (".wav", ".flac")]
JUDGED = [encoding for encoding in Encoding if encoding is not Encoding.PCM_F32LE]
TONES_HZ = [50, 350, 440, 697, 1209, 1477, 2000, 2666, 3000, 3400, 3800]


def written(samples: np.ndarray, encoding: Encoding) -> bytes:
    if encoding is Encoding.MULAW:
        return g711.linear_to_mulaw(samples)
    if encoding is Encoding.ALAW:
        return g711.linear_to_alaw(samples)
    if encoding is Encoding.PCM_U8:
        return ((samples >> 8) + 128).astype(np.uint8).tobytes()
    return samples.astype(">i2" if encoding is Encoding.PCM_S16BE else "<i2").tobytes()


def read(data: bytes, encoding: Encoding) -> np.ndarray:
    return pcm.decode(data[: len(data) // 2 * 2], encoding)


def tracks() -> list[np.ndarray]:
    """Every channel of the recordings in the tests' data."""
    found = []
    for path in SOUNDS:
        samples, _ = soundfile.read(path, dtype="int16", always_2d=True)
        found += [np.ascontiguousarray(column) for column in samples.T]
    return found


def segments(samples: np.ndarray) -> list[np.ndarray]:
    """What the gate takes for speech."""
    segmenter = Segmenter(8000, 0, SegmenterConfig())
    parts: list[np.ndarray] = []
    found = []
    for event in [*segmenter.feed(samples), *segmenter.cut_at_end(EndReason.END)]:
        if isinstance(event, Audio):
            parts.append(event.samples)
        elif isinstance(event, Cut) and parts:
            found.append(np.concatenate(parts))
            parts = []
    return found


def verdicts(samples: np.ndarray, declared: Encoding) -> list[Encoding | None]:
    found = []
    for segment in segments(samples):
        check = EncodingCheck(declared)
        check.hear(segment)
        check.finish()
        found.append(check.suspect)
    return found


@pytest.mark.parametrize("encoding", JUDGED)
@pytest.mark.parametrize("gain", [1.0, 0.1, 0.02])
def test_recorded_speech_is_what_it_is_declared_as(encoding, gain):
    heard = []
    for track in tracks():
        quieter = np.rint(track * gain).astype(np.int16)
        heard += verdicts(read(written(quieter, encoding), encoding), encoding)

    assert len(heard) >= 5
    assert set(heard) == {None}


@pytest.mark.parametrize(
    ("actual", "declared", "told"),
    [
        (Encoding.MULAW, Encoding.PCM_S16LE, Encoding.MULAW),
        (Encoding.ALAW, Encoding.PCM_S16LE, Encoding.ALAW),
        (Encoding.MULAW, Encoding.PCM_S16BE, Encoding.MULAW),
        (Encoding.PCM_S16BE, Encoding.PCM_S16LE, Encoding.PCM_S16BE),
        (Encoding.PCM_S16LE, Encoding.PCM_S16BE, Encoding.PCM_S16LE),
        (Encoding.PCM_S16LE, Encoding.MULAW, Encoding.PCM_S16LE),
        (Encoding.PCM_S16LE, Encoding.ALAW, Encoding.PCM_S16LE),
        (Encoding.PCM_S16BE, Encoding.MULAW, Encoding.PCM_S16LE),
    ],
)
def test_recorded_speech_that_is_declared_otherwise_is_noticed(actual, declared, told):
    per_track = [verdicts(read(written(track, actual), declared), declared) for track in tracks()]

    named = [verdict for track in per_track for verdict in track if verdict is not None]

    assert sum(told in track for track in per_track) >= 0.8 * len(per_track)
    assert named.count(told) >= 0.9 * len(named)


@pytest.mark.parametrize("encoding", JUDGED)
@pytest.mark.parametrize("hz", TONES_HZ)
def test_tones_are_what_they_are_declared_as(encoding, hz):
    time_s = np.arange(HEARD_SAMPLES) / 8000
    for amplitude in (20_000, 2_000, 600):
        tone = np.rint(amplitude * np.sin(2 * np.pi * hz * time_s)).astype(np.int16)
        mixed = np.rint(tone * 0.5 + amplitude / 2 * np.sin(2 * np.pi * 1336 * time_s))

        for samples in (tone, mixed.astype(np.int16)):
            assert likely_encoding(read(written(samples, encoding), encoding), encoding) is None


@pytest.mark.parametrize("encoding", JUDGED)
@pytest.mark.parametrize("seed", range(5))
def test_noise_is_noise_in_every_encoding(encoding, seed):
    data = np.random.default_rng(seed).bytes(HEARD_SAMPLES * encoding.sample_bytes)

    assert likely_encoding(read(data, encoding), encoding) is None


@pytest.mark.parametrize("encoding", JUDGED)
def test_what_hardly_moves_is_not_judged(encoding):
    for samples in (
        np.zeros(HEARD_SAMPLES, np.int16),
        np.full(HEARD_SAMPLES, 8, np.int16),
        np.resize([-8, 8], HEARD_SAMPLES).astype(np.int16),
        np.resize([0, 0, 0, 256], HEARD_SAMPLES).astype(np.int16),
        np.resize([-32768, 32767], HEARD_SAMPLES).astype(np.int16),
    ):
        assert likely_encoding(samples, encoding) is None


def test_floats_are_not_judged():
    check = EncodingCheck(Encoding.PCM_F32LE)

    check.hear(np.random.default_rng(1).integers(-9000, 9000, HEARD_SAMPLES).astype(np.int16))

    assert not check.listens
    assert check.suspect is None


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3000), max_size=12), st.integers(0, 3 * HEARD_SAMPLES))
def test_a_verdict_does_not_depend_on_the_pieces(sizes, length):
    track = read(written(tracks()[0][8000 : 8000 + 4 * HEARD_SAMPLES], Encoding.MULAW), MISREAD)
    track = track[:length]
    whole, pieces = EncodingCheck(MISREAD), EncodingCheck(MISREAD)

    whole.hear(track)
    whole.finish()
    begin = 0
    for size in [*sizes, len(track)]:
        pieces.hear(track[begin : begin + size])
        begin = min(len(track), begin + size)
    pieces.finish()

    assert pieces.suspect is whole.suspect
    assert whole.suspect is None or length >= LEAST_SAMPLES


MISREAD = Encoding.PCM_S16LE
