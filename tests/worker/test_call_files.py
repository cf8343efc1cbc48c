from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oasr.audio import g711
from oasr.audio.pcm import Encoding
from oasr.errors import AudioError
from tests.support.encoders import encoded
from tests.support.recordings import ALAW_TAG, PCM_TAG, wav, write_call
from worker.call_files import find_audio, read_call

EVERY_BYTE = bytes(range(256)) * 4


def test_a_mulaw_call_keeps_its_very_bytes(tmp_path: Path) -> None:
    call = read_call(write_call(tmp_path, "call", EVERY_BYTE))

    assert (call.data, call.encoding) == (EVERY_BYTE, Encoding.MULAW)
    assert (call.sample_rate, call.channels, call.frames) == (8000, 2, 512)
    assert call.duration_s == 0.064


def test_an_alaw_call_keeps_its_very_bytes(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    path.write_bytes(wav(EVERY_BYTE, tag=ALAW_TAG, channels=1))

    assert (read_call(path).data, read_call(path).encoding) == (EVERY_BYTE, Encoding.ALAW)


def test_a_mulaw_call_is_recoded_only_when_asked(tmp_path: Path) -> None:
    path = write_call(tmp_path, "call", EVERY_BYTE)

    linear = read_call(path, Encoding.PCM_S16LE)

    expected = g711.mulaw_to_linear(EVERY_BYTE)
    np.testing.assert_array_equal(np.frombuffer(linear.data, dtype="<i2"), expected)
    assert linear.frames == 512


def test_linear_audio_is_played_as_linear_or_as_the_named_encoding(tmp_path: Path) -> None:
    samples = np.arange(-2000, 2000, 10, dtype=np.int16)
    path = tmp_path / "call.wav"
    path.write_bytes(wav(samples.tobytes(), tag=PCM_TAG, channels=2, rate=16000, width=2))

    assert read_call(path).data == samples.tobytes()
    assert read_call(path).encoding is Encoding.PCM_S16LE
    assert read_call(path, Encoding.MULAW).data == g711.linear_to_mulaw(samples)
    assert read_call(path, Encoding.ALAW).data == g711.linear_to_alaw(samples)


def test_a_frame_that_is_cut_off_at_the_file_s_end_is_left_out(tmp_path: Path) -> None:
    assert read_call(write_call(tmp_path, "call", EVERY_BYTE[:-1])).data == EVERY_BYTE[:-2]


def test_a_piece_of_one_channel_holds_every_second_sample(tmp_path: Path) -> None:
    call = read_call(write_call(tmp_path, "call", bytes(range(10))))

    assert call.piece(1, 2) == bytes([2, 3, 4, 5])
    assert call.piece(1, 2, channel=0) == bytes([2, 4])
    assert call.piece(3, 100, channel=1) == bytes([7, 9])


def test_a_piece_of_one_channel_keeps_samples_of_two_bytes_whole(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    samples = np.array([1, -1, 2, -2, 3, -3], dtype=np.int16)
    path.write_bytes(wav(samples.tobytes(), tag=PCM_TAG, channels=2, width=2))

    piece = read_call(path).piece(1, 2, channel=1)

    assert np.frombuffer(piece, dtype="<i2").tolist() == [-2, -3]


def test_roles_come_from_the_file_beside_the_call(tmp_path: Path) -> None:
    assert read_call(write_call(tmp_path, "a", b"1234", ["agent", "customer"])).roles == (
        "agent",
        "customer",
    )
    assert read_call(write_call(tmp_path, "b", b"1234")).roles == ()


@pytest.mark.parametrize("beside", ["not json", "[1]", '{"roles": "x"}', '{"roles": ["one"]}'])
def test_roles_that_do_not_fit_the_call_are_left_out(tmp_path: Path, beside: str) -> None:
    path = write_call(tmp_path, "a", b"1234")
    path.with_suffix(".json").write_text(beside)

    assert read_call(path).roles == ()


def test_a_file_that_is_no_audio_is_an_audio_error(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    path.write_bytes(b"RIFF nothing of the kind")

    with pytest.raises(AudioError):
        read_call(path)


def test_folders_give_their_audio_sorted_and_files_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    for name in ("b.wav", "a.FLAC", "c.mp3", "d.opus", "notes.txt"):
        (folder / name).write_bytes(b"")
    single = tmp_path / "z.wav"
    single.write_bytes(b"")

    found = find_audio([single, folder])

    assert [path.name for path in found] == ["z.wav", "a.FLAC", "b.wav", "c.mp3", "d.opus"]


@pytest.mark.parametrize(
    ("container", "codec", "rate"),
    [("mp3", "libmp3lame", 16_000), ("ogg", "libopus", 48_000), ("ipod", "aac", 16_000)],
)
def test_any_recording_that_is_read_is_played(
    tmp_path: Path, container: str, codec: str, rate: int
) -> None:
    path = tmp_path / "call.recorded"
    path.write_bytes(encoded(np.zeros((rate, 2), np.int16), rate, container, codec))

    call = read_call(path, Encoding.MULAW)

    assert (call.sample_rate, call.channels, call.frames) == (rate, 2, rate)
    assert set(call.data) <= {0xFF, 0x7F}  # silence


def test_a_path_that_is_not_there_and_a_folder_without_audio_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_audio([tmp_path / "nowhere"])
    with pytest.raises(FileNotFoundError, match=tmp_path.name):
        find_audio([tmp_path])
