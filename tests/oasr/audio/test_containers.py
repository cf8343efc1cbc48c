import io
import itertools
import json
import struct
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio import g711
from oasr.audio.containers import AudioFileInfo, probe, read_blocks
from oasr.errors import AudioError
from tests.support.wav import (
    ALAW,
    EXTENSIBLE,
    FLOAT,
    MULAW,
    PCM,
    chunk,
    extensible_fmt,
    fmt,
    riff,
)

DATA = Path(__file__).parents[2] / "data"
SAMPLES = np.random.default_rng(3).integers(-32768, 32768, 1000).astype(np.int16)
FMT16 = fmt(PCM, 1, 8000, 16)


def read(source, block_frames=16_384):
    info, blocks = read_blocks(source, block_frames)
    parts = list(blocks)
    assert all(part.dtype == np.int16 and part.shape[1] == info.channels for part in parts)
    return info, np.concatenate([np.zeros((0, info.channels), np.int16), *parts])


def flac(samples, rate=8000):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def le16(samples):
    return samples.astype("<i2").tobytes()


def assert_refused(source):
    with pytest.raises(AudioError) as refusal:
        read(source)
    assert refusal.value.code == "container_invalid"


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("block_frames", [1, 7, 100, 5000])
def test_a_file_of_the_wave_module_is_read_in_blocks_of_any_size(tmp_path, channels, block_frames):
    frames = SAMPLES[: 996 // channels * channels].reshape(-1, channels)
    path = tmp_path / "a.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(44_100)
        file.writeframes(le16(frames))

    info, read_frames = read(path, block_frames)

    assert info == AudioFileInfo(44_100, channels, len(frames), "pcm_s16le", [])
    assert np.array_equal(read_frames, frames)


def test_blocks_are_never_longer_than_asked_for():
    _, blocks = read_blocks(flac(SAMPLES), 300)

    assert [len(block) for block in blocks] == [300, 300, 300, 100]


def test_long_blocks_of_flac_come_whole():
    samples = np.tile(SAMPLES, 20)

    _, blocks = read_blocks(flac(samples), 16_384)

    lengths = [len(block) for block in blocks]
    assert sum(lengths) == 20_000
    assert max(lengths) <= 16_384
    assert len(lengths) == 2


def test_path_string_and_bytes_give_the_same(tmp_path):
    path = tmp_path / "a.flac"
    path.write_bytes(flac(SAMPLES))

    for source in (path, str(path), path.read_bytes()):
        info, frames = read(source)
        assert info == AudioFileInfo(8000, 1, 1000, "flac", [])
        assert np.array_equal(frames[:, 0], SAMPLES)


def float_bytes():
    return (SAMPLES / 32768).astype("<f4").tobytes()


def wide_bytes(width):
    low = width - 2
    return b"".join(b"\x5a" * low + struct.pack("<h", sample) for sample in SAMPLES.tolist())


ENCODED = {
    "8-bit unsigned": (PCM, 8, bytes((s >> 8) + 128 for s in SAMPLES.tolist())),
    "24-bit": (PCM, 24, wide_bytes(3)),
    "32-bit": (PCM, 32, wide_bytes(4)),
    "float": (FLOAT, 32, float_bytes()),
    "double": (FLOAT, 64, (SAMPLES / 32768).astype("<f8").tobytes()),
    "µ-law": (MULAW, 8, g711.linear_to_mulaw(SAMPLES)),
    "A-law": (ALAW, 8, g711.linear_to_alaw(SAMPLES)),
}
EXPECTED = {
    "8-bit unsigned": SAMPLES >> 8 << 8,
    "µ-law": g711.mulaw_to_linear(g711.linear_to_mulaw(SAMPLES)),
    "A-law": g711.alaw_to_linear(g711.linear_to_alaw(SAMPLES)),
}


@pytest.mark.parametrize("header", [fmt, extensible_fmt])
@pytest.mark.parametrize("name", ENCODED)
def test_every_plain_encoding_is_read_from_plain_and_extensible_headers(name, header):
    tag, bits, data = ENCODED[name]

    info, frames = read(riff(header(tag, 1, 8000, bits), chunk(b"data", data)))

    assert info.warnings == []
    assert info.frames == 1000
    assert np.array_equal(frames[:, 0], EXPECTED.get(name, SAMPLES))


def test_float_samples_are_clipped_and_cleared_of_nan():
    data = struct.pack("<5f", float("nan"), 2.0, -2.0, float("inf"), 0.5)

    _, frames = read(riff(fmt(FLOAT, 1, 8000, 32), chunk(b"data", data)))

    assert frames[:, 0].tolist() == [0, 32767, -32768, 32767, 16384]


@pytest.mark.parametrize(
    "extra",
    [
        chunk(b"LIST", b"INFOINAM\x03\x00\x00\x00abc\x00"),
        chunk(b"JUNK", bytes(28)),
        chunk(b"fact", struct.pack("<I", 1000)),
        chunk(b"abcd", b"odd"),
        chunk(b"bext", bytes(602)),
    ],
)
def test_other_chunks_are_stepped_over(extra):
    data = chunk(b"data", le16(SAMPLES))

    for file in (riff(extra, FMT16, data), riff(FMT16, extra, data), riff(FMT16, data, extra)):
        info, frames = read(file)
        assert info.warnings == []
        assert np.array_equal(frames[:, 0], SAMPLES)


def test_a_chunk_after_padded_data_is_no_audio():
    data = bytes(range(1, 100))
    list_chunk = chunk(b"LIST", b"INFO")

    info, frames = read(riff(fmt(PCM, 1, 8000, 8), chunk(b"data", data), list_chunk))

    assert info.warnings == []
    assert len(frames) == 99


def test_a_file_without_samples_is_empty():
    info, frames = read(riff(FMT16, chunk(b"data", b"")))

    assert info.warnings == []
    assert frames.shape == (0, 1)


@pytest.mark.parametrize("declared_riff", [0, 36, 0xFFFFFFFF])
@pytest.mark.parametrize("declared", [0, 0x7FFFFFFF, 0xFFFFFFFF])
def test_sizes_that_a_pipe_left_open_are_taken_from_the_file(declared, declared_riff):
    data = chunk(b"data", le16(SAMPLES), declared)

    info, frames = read(riff(FMT16, data, declared=declared_riff))

    assert info.warnings == ["header_size_mismatch"]
    assert info.frames == 1000
    assert np.array_equal(frames[:, 0], SAMPLES)


def test_an_open_size_is_mended_in_a_file_on_disk(tmp_path):
    path = tmp_path / "pipe.wav"
    path.write_bytes(riff(FMT16, chunk(b"data", le16(SAMPLES), 0)))

    info, frames = read(path, 64)

    assert info.warnings == ["header_size_mismatch"]
    assert np.array_equal(frames[:, 0], SAMPLES)


@pytest.mark.parametrize("kept_bytes", [0, 2, 1000, 1999])
def test_the_good_part_of_a_wav_that_was_cut_off_is_read(kept_bytes):
    whole = riff(FMT16, chunk(b"data", le16(SAMPLES)))

    info, frames = read(whole[: 44 + kept_bytes])

    assert info.warnings == ["truncated"]
    assert np.array_equal(frames[:, 0], SAMPLES[: kept_bytes // 2])


def test_half_a_frame_at_the_end_is_dropped_with_a_warning():
    stereo = fmt(PCM, 2, 8000, 16)

    info, frames = read(riff(stereo, chunk(b"data", le16(SAMPLES[:7]))))

    assert info.warnings == ["truncated"]
    assert frames.reshape(-1).tolist() == SAMPLES[:6].tolist()


def test_bytes_beyond_the_declared_data_are_left_alone():
    info, frames = read(riff(FMT16, chunk(b"data", le16(SAMPLES[:500])), b"\xff\xfe" * 500))

    assert info.warnings == ["header_size_mismatch"]
    assert np.array_equal(frames[:, 0], SAMPLES[:500])


def test_rf64_is_read_by_its_long_sizes():
    data = le16(SAMPLES)
    ds64 = chunk(b"ds64", struct.pack("<QQQI", 2080, len(data), 1000, 0))
    body = b"WAVE" + ds64 + FMT16 + chunk(b"data", data, 0xFFFFFFFF)

    info, frames = read(b"RF64" + struct.pack("<I", 0xFFFFFFFF) + body)

    assert info.warnings == []
    assert np.array_equal(frames[:, 0], SAMPLES)


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.9])
def test_the_good_part_of_a_flac_that_was_cut_off_is_read(kept):
    samples = np.random.default_rng(4).integers(-9999, 9999, 60_000).astype(np.int16)
    whole = flac(samples)

    info, frames = read(whole[: int(len(whole) * kept)])

    assert info.frames == 60_000
    assert info.warnings == ["truncated"]
    assert kept * 60_000 - len(frames) <= 4096
    assert np.array_equal(frames[:, 0], samples[: len(frames)])


def test_a_flac_that_is_damaged_in_the_middle_is_silent_there_and_goes_on_in_its_place():
    samples = np.random.default_rng(5).integers(-9999, 9999, 60_000).astype(np.int16)
    damaged = bytearray(flac(samples))
    middle = len(damaged) // 2
    damaged[middle : middle + 64] = bytes(64)

    info, frames = read(bytes(damaged))

    assert info.warnings == ["gap"]
    assert len(frames) == 60_000
    lost = np.flatnonzero(frames[:, 0] != samples)
    assert lost[-1] - lost[0] < 4096  # one block
    assert not frames[lost].any()


def test_a_flac_without_any_whole_block_is_refused():
    assert_refused(flac(SAMPLES)[:100])


def test_a_flac_of_unknown_length_is_read_to_its_end():
    streamed = bytearray(flac(SAMPLES))
    streamed[21] &= 0xF0  # the 36 bits of the number of samples
    streamed[22:26] = bytes(4)

    info, frames = read(bytes(streamed))

    assert info.frames is None
    assert info.warnings == []
    assert np.array_equal(frames[:, 0], SAMPLES)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"fLaC",
        b"RIFF\x04\x00\x00\x00WAVE",
        b"RIFF\x04\x00\x00\x00AVI ",
        b"OggS" + bytes(100),
        b"\x1a\x45\xdf\xa3" + bytes(100),
        b"\x00\x00\x00\x20ftypM4A " + bytes(100),
        b"caff" + bytes(100),
        b"FORM\x00\x00\x00\x2eAIFF" + bytes(38),
        b".snd" + bytes(60),
        b"ID3" + bytes(100),
        b"<html>no such file</html>",
        bytes(1000),
        riff(chunk(b"data", bytes(100))),
        riff(FMT16),
        riff(fmt(PCM, 0, 8000, 16), chunk(b"data", bytes(100))),
        riff(fmt(PCM, 1, 0, 16), chunk(b"data", bytes(100))),
        riff(fmt(PCM, 17, 8000, 16), chunk(b"data", bytes(340))),
        riff(fmt(PCM, 1, 999, 16), chunk(b"data", bytes(100))),
        riff(fmt(PCM, 1, 384_001, 16), chunk(b"data", bytes(100))),
        riff(fmt(PCM, 1, 0x40000000, 16), chunk(b"data", bytes(100))),
        riff(fmt(0x55, 1, 8000, 16), chunk(b"data", bytes(100))),
        riff(fmt(EXTENSIBLE, 1, 8000, 16), chunk(b"data", bytes(100))),
        riff(fmt(PCM, 1, 8000, 16)[:10], chunk(b"data", bytes(100))),
    ],
)
def test_what_is_no_recording_is_refused(data):
    assert_refused(data)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_headers_give_audio_or_a_refusal_and_nothing_else(data):
    file = bytearray(riff(FMT16, chunk(b"LIST", bytes(9)), chunk(b"data", le16(SAMPLES[:200]))))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, 70))] = data.draw(st.integers(0, 255))
    kept = data.draw(st.integers(0, len(file)))

    try:
        info, frames = read(bytes(file[:kept]))
    except AudioError:
        return
    assert frames.size <= 400
    assert 1_000 <= info.sample_rate <= 384_000
    assert set(info.warnings) <= {"truncated", "header_size_mismatch"}


def test_a_path_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "none.wav")


def test_blocks_must_have_frames():
    with pytest.raises(ValueError, match="block_frames"):
        read_blocks(riff(FMT16, chunk(b"data", b"")), 0)


def test_memory_stays_flat_however_long_the_file_is(tmp_path):
    path = tmp_path / "long.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        for _ in range(20):
            file.writeframes(bytes(1_000_000))
    _, blocks = read_blocks(path)
    next(blocks)
    tracemalloc.start()

    frames = sum(len(block) for block in blocks)

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frames == 10_000_000 - 16_384
    assert peak_bytes < 1_000_000


def test_a_recording_of_five_gigabytes_is_described_whole_and_read_in_little_memory(tmp_path):
    path = tmp_path / "huge.wav"
    frames = 2_500_000_000
    sizes = struct.pack("<QQQI", 2 * frames + 80, 2 * frames, frames, 0)
    begin = SAMPLES
    with open(path, "wb") as file:
        file.write(b"RF64" + b"\xff" * 4 + b"WAVE" + chunk(b"ds64", sizes) + FMT16)
        file.write(b"data" + b"\xff" * 4 + le16(begin))
        file.truncate(file.tell() + 2 * (frames - len(begin)))  # sparse: it takes no room
    tracemalloc.start()

    info, blocks = read_blocks(path)
    first = np.concatenate(list(itertools.islice(blocks, 200)))

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    blocks.close()
    assert (info.frames, info.warnings) == (frames, [])
    assert np.array_equal(first[: len(begin), 0], begin)
    assert not first[len(begin) :].any()
    assert len(first) > 3_000_000
    assert peak_bytes < 16_000_000  # twice what was kept of it


def test_the_bundled_call_is_what_libsndfile_reads():
    path = DATA / "calls/call-00.wav"
    expected, rate = soundfile.read(path, dtype="int16")
    truth = json.loads(path.with_suffix(".json").read_text())

    info, frames = read(path)

    assert (info.sample_rate, info.channels, info.encoding) == (rate, 2, "pcm_mulaw")
    assert info.sample_rate == truth["sample_rate"]
    assert np.array_equal(frames, expected)
