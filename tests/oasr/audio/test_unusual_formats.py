"""What few systems write: read as what was recorded, or refused by its name."""

from __future__ import annotations

import io
import struct
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from oasr.audio.containers import AudioFileInfo, read_blocks
from oasr.errors import AudioError
from tests.support.encoders import encoded, written
from tests.support.signals import speech
from tests.support.wav import chunk, riff

Int16Array = NDArray[np.int16]

MONO = speech(3.0)[:, np.newaxis]  # at 8 kHz
STEREO = np.hstack([MONO, speech(3.0, seed=2)[:, np.newaxis]])


def read(data: bytes) -> tuple[AudioFileInfo, Int16Array]:
    info, blocks = read_blocks(data, 4_096)
    return info, np.concatenate([np.zeros((0, info.channels), np.int16), *blocks])


@pytest.mark.parametrize("samples", [MONO, STEREO], ids=["mono", "stereo"])
def test_ima_adpcm_is_read_as_libsndfile_reads_it(samples: Int16Array) -> None:
    data = written(samples, 8_000, "WAV", "IMA_ADPCM")
    expected, _ = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)

    info, found = read(data)

    assert (info.encoding, info.warnings) == ("adpcm_ima_wav", [])
    np.testing.assert_array_equal(found, expected)


# Tables of the format's published description ("Microsoft ADPCM" in the RIFF registrations).
_ADAPTATION = (230, 230, 230, 230, 307, 409, 512, 614, 768, 614, 512, 409, 307, 230, 230, 230)
_COEFFICIENTS = ((256, 0), (512, -256), (0, 0), (192, 64), (240, 0), (460, -208), (392, -232))


def ms_adpcm_block(block: bytes) -> list[int]:
    """One mono block, nibble by nibble, by the published rule."""
    first, second = _COEFFICIENTS[block[0]]
    delta, newest, older = struct.unpack_from("<3h", block, 1)
    samples = [older, newest]
    for byte in block[7:]:
        for nibble in (byte >> 4, byte & 15):
            signed = nibble - 16 if nibble > 7 else nibble
            predicted = int((newest * first + older * second) / 256)  # towards zero
            sample = max(-32768, min(32767, predicted + signed * delta))
            newest, older = sample, newest
            delta = max(16, _ADAPTATION[nibble] * delta >> 8)
            samples.append(sample)
    return samples


def test_microsoft_adpcm_is_read_by_its_published_rule() -> None:
    data = written(MONO, 8_000, "WAV", "MS_ADPCM")
    block_bytes = struct.unpack_from("<H", data, 32)[0]
    begin = data.index(b"data") + 8
    audio = data[begin : begin + struct.unpack_from("<I", data, begin - 4)[0]]
    expected = [
        sample
        for at in range(0, len(audio), block_bytes)
        for sample in ms_adpcm_block(audio[at : at + block_bytes])
    ]

    info, found = read(data)

    assert (info.encoding, info.warnings) == ("adpcm_ms", [])
    assert len(found) == len(MONO)
    np.testing.assert_array_equal(found[:, 0], expected[: len(found)])


@pytest.mark.parametrize("brand", ["3gp", "3g2"])
def test_amr_in_3gp_is_what_the_same_amr_is_outside(brand: str) -> None:
    bare = encoded(MONO, 8_000, "amr", "libopencore_amrnb", bit_rate=12_200)
    packed = encoded(MONO, 8_000, brand, "libopencore_amrnb", bit_rate=12_200)

    info, found = read(packed)

    assert (info.encoding, info.sample_rate, info.warnings) == ("amrnb", 8_000, [])
    assert len(found) == len(MONO)
    late = 50  # samples of the encoder's delay, which the edit list of the container leaves out
    np.testing.assert_array_equal(found, read(bare)[1][late : late + len(found)])


_WIDE_BAND_BYTES = (17, 23, 32, 36, 40, 46, 50, 58, 60)  # of speech by mode, 3GPP TS 26.201


@pytest.mark.parametrize("mode", range(len(_WIDE_BAND_BYTES)))
def test_amr_wide_band_has_320_samples_a_frame_at_16_khz(mode: int) -> None:
    rng = np.random.default_rng(mode)
    frames = [bytes([mode << 3 | 4]) + rng.bytes(_WIDE_BAND_BYTES[mode]) for _ in range(50)]

    info, found = read(b"#!AMR-WB\n" + b"".join(frames))

    assert (info.encoding, info.sample_rate, info.channels) == ("amrwb", 16_000, 1)
    assert found.shape == (50 * 320, 1)


def test_dolby_digital_is_read_in_a_film() -> None:
    samples = np.repeat(STEREO, 6, axis=0)  # at 48 kHz

    info, found = read(encoded(samples, 48_000, "matroska", "ac3", bit_rate=192_000))

    assert (info.encoding, info.sample_rate, info.channels) == ("ac3", 48_000, 2)
    assert 0 <= len(found) - len(samples) < 2 * 1_536  # whole blocks
    said = samples.astype(float)
    noise = (found[: len(said)] - said) ** 2
    assert 10 * np.log10((said**2).mean() / noise.mean()) > 15


def _asf() -> bytes:
    return bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c") + bytes(100)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (_asf(), "Windows Media"),
        (encoded(np.repeat(MONO, 6, axis=0), 48_000, "ac3", "ac3"), "AC-3"),
        (encoded(np.repeat(MONO, 6, axis=0), 48_000, "mpegts", "aac"), "MPEG transport stream"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "JPEG"),
        (b"%PDF-1.7\n" + bytes(100), "PDF"),
        (b"PK\x03\x04" + bytes(100), "ZIP"),
        (b"\x1f\x8b\x08" + bytes(100), "gzip"),
        (b"#!SILK_V3" + bytes(100), "SILK"),
        (b"MThd\0\0\0\x06" + bytes(100), "MIDI"),
        (written(MONO, 8_000, "WAV", "G721_32"), "g726"),
        (encoded(np.repeat(MONO, 2, axis=0), 16_000, "wav", "g722"), "g722"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_read_is_refused_by_its_name(data: bytes, name: str) -> None:
    with pytest.raises(AudioError, match=name) as refused:
        read(data)

    assert refused.value.code == "container_invalid"


def test_a_codec_that_nobody_knows_is_refused() -> None:
    unknown = riff(
        chunk(b"fmt ", struct.pack("<HHIIHH", 0x7FF1, 1, 8_000, 8_000, 1, 8)),
        chunk(b"data", bytes(800)),
    )

    with pytest.raises(AudioError) as refused:
        read(unknown)

    assert refused.value.code == "container_invalid"


def opus_with_gaps(samples: Int16Array, lost: list[range]) -> bytes:
    """A WebM of 48 kHz whose packets that begin in `lost` (in ms) were never written."""
    output = io.BytesIO()
    with av.open(output, "w", format="webm") as container:
        stream: Any = container.add_stream("libopus", rate=48_000, layout="mono")
        stream.bit_rate = 64_000
        for begin in range(0, len(samples), 960):
            part = np.ascontiguousarray(samples[begin : begin + 960].T)
            frame = av.AudioFrame.from_ndarray(part, format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, begin, Fraction(1, 48_000)
            _mux_kept(container, stream.encode(frame), lost)
        _mux_kept(container, stream.encode(None), lost)
    return output.getvalue()


def _mux_kept(container: Any, packets: list[Any], lost: list[range]) -> None:
    for packet in packets:
        begin_ms = int(packet.pts * packet.time_base * 1_000)
        if not any(begin_ms in part for part in lost):
            container.mux(packet)


def test_a_webm_with_many_gaps_keeps_everything_between_them_in_its_place() -> None:
    samples = np.repeat(np.vstack([MONO] * 4), 6, axis=0)  # 12 s at 48 kHz
    lost = [range(begin, begin + 300) for begin in range(1_000, 11_000, 1_000)]
    _, expected = read(opus_with_gaps(samples, []))

    info, found = read(opus_with_gaps(samples, lost))

    assert info.warnings == ["gap"]
    assert len(found) == len(expected)
    for begin_ms in range(1_000, 11_000, 1_000):
        silence = found[(begin_ms + 40) * 48 : (begin_ms + 240) * 48]
        assert not silence.any()
        settled = slice((begin_ms + 700) * 48, (begin_ms + 950) * 48)
        heard, said = found[settled, 0].astype(float), expected[settled, 0].astype(float)
        assert np.corrcoef(heard, said)[0, 1] > 0.99  # one sample of shift would cost more
