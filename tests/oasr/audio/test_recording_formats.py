"""Each format that recording systems write is read as what was recorded, from end to end."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from oasr.audio.container_formats import sniff
from oasr.audio.containers import AudioFileInfo, probe, read_blocks
from oasr.errors import AudioError
from tests.support.encoders import encoded, film, written
from tests.support.signals import speech

Int16Array = NDArray[np.int16]

MONO = speech(3.0)[:, np.newaxis]  # at 8 kHz
STEREO = np.hstack([MONO, speech(3.0, seed=2)[:, np.newaxis]])


def at(rate: int) -> Int16Array:
    """The mono speech as if it had been recorded at another rate."""
    times = np.arange(3 * rate) / rate
    values = np.interp(times, np.arange(len(MONO)) / 8_000, MONO[:, 0])
    return np.rint(values).astype(np.int16)[:, np.newaxis]


def read(data: bytes) -> tuple[AudioFileInfo, Int16Array]:
    info, blocks = read_blocks(data, 4_096)
    parts = list(blocks)
    assert all(part.dtype == np.int16 and 1 <= len(part) <= 4_096 for part in parts)
    return info, np.concatenate([np.zeros((0, info.channels), np.int16), *parts])


def snr_db(found: Int16Array, expected: Int16Array) -> float:
    noise = found.astype(float) - expected
    return float(10 * np.log10((expected.astype(float) ** 2).mean() / (noise**2).mean()))


def delay(found: Int16Array, expected: Int16Array) -> int:
    """By how many samples `found` comes later, by the peak of the correlation."""
    a, b = found[:, 0].astype(float), expected[:, 0].astype(float)
    size = 1 << (len(a) + len(b)).bit_length()
    product = np.fft.irfft(np.fft.rfft(a, size) * np.conj(np.fft.rfft(b, size)), size)
    peak = int(np.argmax(product))
    return peak - size if peak > size // 2 else peak


@pytest.mark.parametrize(
    ("container", "subtype"),
    [
        ("AIFF", "PCM_16"),
        ("AIFF", "PCM_24"),
        ("CAF", "PCM_16"),
        ("AU", "PCM_16"),
        ("W64", "PCM_16"),
        ("RF64", "PCM_16"),
        ("WAVEX", "PCM_24"),
        ("FLAC", "PCM_16"),
        ("FLAC", "PCM_24"),
    ],
)
@pytest.mark.parametrize("samples", [MONO, STEREO], ids=["mono", "stereo"])
def test_what_keeps_every_sample_is_read_sample_for_sample(
    container: str, subtype: str, samples: Int16Array
) -> None:
    info, found = read(written(samples, 8_000, container, subtype))

    assert (info.sample_rate, info.channels, info.frames) == (8_000, samples.shape[1], len(samples))
    assert info.warnings == []
    np.testing.assert_array_equal(found, samples)


@pytest.mark.parametrize(
    ("container", "codec"),
    [("ipod", "alac"), ("mov", "pcm_s16le"), ("matroska", "pcm_s16le"), ("matroska", "flac")],
)
def test_so_is_what_ffmpeg_writes_without_loss(container: str, codec: str) -> None:
    info, found = read(encoded(STEREO, 8_000, container, codec))

    assert info.warnings == []
    np.testing.assert_array_equal(found, STEREO)


@pytest.mark.parametrize(
    ("container", "subtype"), [("AIFF", "ULAW"), ("CAF", "ALAW"), ("AU", "ULAW"), ("WAV", "GSM610")]
)
def test_telephone_encodings_are_read_as_libsndfile_reads_them(
    container: str, subtype: str
) -> None:
    data = written(MONO, 8_000, container, subtype)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)

    _, found = read(data)

    assert len(found) in (len(expected), len(MONO))  # the latter without an encoder's padding
    np.testing.assert_array_equal(found, expected[: len(found)])


def test_gsm_without_a_container_is_known_by_its_frames() -> None:
    bare = written(MONO, 8_000, "RAW", "GSM610")
    packed = written(MONO, 8_000, "WAV", "GSM610")

    info, found = read(bare)

    assert (info.encoding, info.sample_rate, info.channels) == ("gsm", 8_000, 1)
    np.testing.assert_array_equal(found[: len(MONO)], read(packed)[1][: len(found)])


LOSSY = [
    # container, codec, rate, bit rate, least signal to noise in dB
    ("mp3", "libmp3lame", 8_000, 48_000, 20.0),
    ("mp3", "libmp3lame", 16_000, 64_000, 20.0),
    ("mp3", "libmp3lame", 44_100, 128_000, 20.0),
    ("ipod", "aac", 16_000, 96_000, 20.0),
    ("ipod", "aac", 44_100, 128_000, 20.0),
    ("ogg", "libopus", 48_000, 96_000, 15.0),
    ("webm", "libopus", 48_000, 96_000, 15.0),
    ("matroska", "aac", 16_000, 96_000, 20.0),
]


@pytest.mark.parametrize(("container", "codec", "rate", "bit_rate", "least_db"), LOSSY)
def test_what_loses_some_keeps_length_place_and_sound(
    container: str, codec: str, rate: int, bit_rate: int, least_db: float
) -> None:
    samples = at(rate)

    info, found = read(encoded(samples, rate, container, codec, bit_rate=bit_rate))

    assert (info.sample_rate, info.channels, info.warnings) == (rate, 1, [])
    if (container, codec) != ("matroska", "aac"):  # says nothing of the encoder's last block
        assert len(found) == len(samples)
    assert delay(found, samples) == 0
    assert snr_db(found[: len(samples)], samples) > least_db


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_ogg_of_another_writer_is_read_in_full(subtype: str) -> None:
    info, found = read(written(at(48_000), 48_000, "OGG", subtype))

    assert info.warnings == []
    assert len(found) == 3 * 48_000
    assert delay(found, at(48_000)) == 0
    assert snr_db(found, at(48_000)) > 8.0


def test_mp3_of_another_writer_is_as_libsndfile_reads_it() -> None:
    data = written(at(16_000), 16_000, "MP3", "MPEG_LAYER_III")
    expected, _ = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)

    _, found = read(data)

    assert len(found) == len(expected) == 48_000
    assert np.abs(found.astype(int) - expected).max() <= 2


def test_amr_comes_as_late_as_its_coder_looks_ahead() -> None:
    info, found = read(encoded(MONO, 8_000, "amr", "libopencore_amrnb", bit_rate=12_200))

    assert (info.encoding, info.sample_rate, info.warnings) == ("amrnb", 8_000, [])
    assert 0 <= len(found) - len(MONO) <= 320
    late = delay(found, MONO)
    assert 0 <= late <= 100
    heard, said = found[late : late + 20_000, 0], MONO[:20_000, 0]
    assert np.corrcoef(heard, said)[0, 1] > 0.5  # a voice made anew, not its wave


def test_aac_without_a_container_keeps_what_its_coder_put_in_front() -> None:
    _, found = read(encoded(at(16_000), 16_000, "adts", "aac", bit_rate=96_000))

    assert delay(found, at(16_000)) == 1_024
    assert snr_db(found[1_024 : 1_024 + 40_000], at(16_000)[:40_000]) > 20.0


def test_the_rate_is_that_of_what_is_decoded() -> None:
    info = probe(encoded(at(16_000), 16_000, "ogg", "libopus"))

    assert info.sample_rate == 48_000  # whatever an Opus stream was made from


CUT = [
    ("mp3", "libmp3lame", 16_000, 64_000),
    ("adts", "aac", 16_000, 64_000),
    ("ogg", "libopus", 48_000, 64_000),
    ("webm", "libopus", 48_000, 64_000),
    ("amr", "libopencore_amrnb", 8_000, 12_200),
    ("aiff", "pcm_s16be", 8_000, None),
    ("caf", "pcm_s16be", 8_000, None),
    ("au", "pcm_s16be", 8_000, None),
    ("w64", "pcm_s16le", 8_000, None),
    ("flac", "flac", 8_000, None),
    ("fast", "aac", 16_000, 64_000),
]


@pytest.mark.parametrize("kept", [0.5, 0.9])
@pytest.mark.parametrize(("container", "codec", "rate", "bit_rate"), CUT)
def test_of_a_file_that_breaks_off_the_good_part_is_read(
    container: str, codec: str, rate: int, bit_rate: int | None, kept: float
) -> None:
    options = {}
    if container == "fast":  # the tables of an M4A before its audio
        container, options = "ipod", {"movflags": "faststart"}
    samples = at(rate)
    whole = encoded(samples, rate, container, codec, options, bit_rate)
    _, expected = read(whole)

    info, found = read(whole[: int(len(whole) * kept) | 1])

    assert info.warnings == ["truncated"]
    assert (kept - 0.4) * len(samples) < len(found) < len(expected)
    good = len(found) - rate // 10  # the last block may have been decoded from half of it
    np.testing.assert_array_equal(found[:good], expected[:good])


def test_an_m4a_whose_tables_are_lost_is_refused() -> None:
    whole = encoded(at(16_000), 16_000, "ipod", "aac")

    with pytest.raises(AudioError) as refused:
        read(whole[: len(whole) // 2])

    assert refused.value.code == "container_invalid"


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [("mp3", "libmp3lame", 16_000), ("ogg", "libopus", 48_000), ("flac", "flac", 8_000)],
)
def test_what_is_damaged_in_the_middle_is_silence_and_the_rest_keeps_its_place(
    container: str, codec: str, rate: int
) -> None:
    whole = encoded(at(rate), rate, container, codec, bit_rate=64_000)
    _, expected = read(whole)
    damaged = bytearray(whole)
    middle = len(damaged) // 2
    damaged[middle : middle + 400] = bytes(400)

    info, found = read(bytes(damaged))

    assert info.warnings == ["gap"]
    before = rate * 9 // 10
    np.testing.assert_array_equal(found[:before], expected[:before])
    if container == "mp3":  # has no time stamps: what is lost is missing
        assert 0 <= len(expected) - len(found) <= rate // 10
    else:
        assert len(found) == len(expected)
        settled = rate * 7 // 10  # a decoder needs a moment until it sounds as it would have
        assert np.abs(found[-settled:].astype(int) - expected[-settled:]).max() <= 1


def test_of_a_film_the_sound_is_read() -> None:
    for container in ("mp4", "matroska"):
        info, found = read(film([at(16_000)], 16_000, container, "aac", pictures=20))

        assert (info.encoding, info.sample_rate, info.warnings) == ("aac", 16_000, [])
        assert snr_db(found[:48_000], at(16_000)) > 15.0


def test_a_film_without_sound_is_refused() -> None:
    with pytest.raises(AudioError, match="no audio"):
        probe(film([], 16_000, "mp4", "aac", pictures=5))


@pytest.mark.parametrize("default", [0, 1])
def test_of_several_audio_tracks_the_default_is_read_with_a_warning(default: int) -> None:
    tracks = [MONO, MONO[::-1].copy()]

    info, found = read(film(tracks, 8_000, "matroska", "pcm_s16le", default=default))

    assert info.warnings == ["more_audio_streams"]
    np.testing.assert_array_equal(found, tracks[default])


def test_without_a_default_the_first_track_is_read() -> None:
    tracks = [MONO, MONO[::-1].copy()]
    # Neither track is marked: the disposition of both is cleared.
    info, found = read(film(tracks, 8_000, "matroska", "pcm_s16le", default=9))

    assert info.warnings == ["more_audio_streams"]
    np.testing.assert_array_equal(found, tracks[0])


@pytest.mark.parametrize(
    "text",
    [
        b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n",
        b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        b"<?xml version='1.0'?><MPD></MPD>",
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n",
    ],
)
def test_lists_of_other_files_never_reach_the_library(text: bytes) -> None:
    assert sniff(io.BytesIO(text)) is None
    with pytest.raises(AudioError, match="of no kind that is read"):
        probe(text)


def test_an_encoding_off_the_list_is_refused() -> None:
    with pytest.raises(AudioError) as refused:
        probe(written(MONO, 8_000, "WAV", "G721_32"))

    assert refused.value.code == "container_invalid"


@pytest.mark.parametrize(("container", "codec", "rate", "bit_rate"), CUT[:-1])
def test_nothing_of_a_broken_file_is_logged(
    container: str,
    codec: str,
    rate: int,
    bit_rate: int | None,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    data = bytearray(encoded(at(rate), rate, container, codec, bit_rate=bit_rate))
    rng = np.random.default_rng(1)
    for place in rng.integers(16, len(data), 300).tolist():
        data[place] = int(rng.integers(256))

    try:
        read(bytes(data))
    except AudioError as error:
        assert error.code == "container_invalid"  # noqa: PT017 - either outcome is right

    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


_PEAK = """
import resource, sys
from oasr.audio.containers import read_blocks
for path in sys.argv[1:]:
    frames = sum(len(block) for block in read_blocks(path)[1])
    print(frames, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_length_of_a_file(tmp_path: Path) -> None:
    minute = np.tile(at(8_000), (20, 1))
    paths = []
    for minutes in (1, 20):
        path = tmp_path / f"{minutes}.flac"
        path.write_bytes(written(np.tile(minute, (minutes, 1)), 8_000, "FLAC", "PCM_16"))
        paths.append(str(path))

    done = subprocess.run(
        [sys.executable, "-c", _PEAK, *paths], capture_output=True, text=True, check=True
    )

    (frames, peak_kib), (more_frames, later_kib) = (
        map(int, line.split()) for line in done.stdout.splitlines()
    )
    assert (frames, more_frames) == (480_000, 9_600_000)
    assert later_kib - peak_kib < 8_000  # the samples alone have 19 MB
