import io
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio import pcm
from oasr.audio.pcm import Encoding

SAMPLES = [-32768, -32767, -256, -1, 0, 1, 255, 12345, 32767]


def test_wire_names_and_sample_sizes():
    assert {e.value: e.sample_bytes for e in Encoding} == {
        "pcm_s16le": 2,
        "pcm_s16be": 2,
        "pcm_f32le": 4,
        "pcm_u8": 1,
        "mulaw": 1,
        "alaw": 1,
    }


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        (Encoding.PCM_S16LE, struct.pack(f"<{len(SAMPLES)}h", *SAMPLES)),
        (Encoding.PCM_S16BE, struct.pack(f">{len(SAMPLES)}h", *SAMPLES)),
        (
            Encoding.PCM_F32LE,
            struct.pack(f"<{len(SAMPLES)}f", *(value / 32768 for value in SAMPLES)),
        ),
    ],
)
def test_sixteen_bits_pass_unchanged(encoding, data):
    decoded = pcm.decode(data, encoding)

    assert decoded.dtype == np.int16
    assert decoded.dtype.isnative
    assert decoded.tolist() == SAMPLES


def test_eight_bits_are_unsigned():
    assert pcm.decode(b"\x00\x7f\x80\x81\xff", Encoding.PCM_U8).tolist() == [
        -32768,
        -256,
        0,
        256,
        32512,
    ]


def test_floats_are_rounded_clipped_and_cleared_of_nan():
    values = [0.0, 1.0, -1.0, 1.5, -7.0, float("inf"), float("-inf"), float("nan")]
    values += [1.4 / 32768, 1.6 / 32768, -1.6 / 32768]
    signalling_nan = struct.pack("<I", 0x7F80_0001)

    decoded = pcm.decode(
        struct.pack(f"<{len(values)}f", *values) + signalling_nan, Encoding.PCM_F32LE
    )

    full, least = 32767, -32768
    assert decoded.tolist() == [0, full, least, full, least, full, least, 0, 1, 2, -2, 0]


def test_companded_bytes_decode_by_their_law():
    assert pcm.decode(b"\x00\xff", Encoding.MULAW).tolist() == [-32124, 0]
    assert pcm.decode(b"\xaa\xd5", Encoding.ALAW).tolist() == [32256, 8]


@pytest.mark.parametrize("encoding", list(Encoding))
def test_nothing_decodes_to_nothing(encoding):
    assert pcm.decode(b"", encoding).shape == (0,)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_decoded_samples_can_be_written_to(encoding):
    decoded = pcm.decode(bytearray(8), encoding)

    decoded[0] = 5

    assert decoded[0] == 5


@pytest.mark.parametrize(
    ("encoding", "size"), [("pcm_s16le", 3), ("pcm_s16be", 1), ("pcm_f32le", 6)]
)
def test_half_a_sample_is_refused(encoding, size):
    with pytest.raises(ValueError, match=encoding):
        pcm.decode(bytes(size), Encoding(encoding))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 8), st.integers(0, 50), st.integers(0, 2**32 - 1))
def test_split_channels_are_the_columns_of_the_frames(channels, frames, seed):
    samples = np.random.default_rng(seed).integers(-9, 9, channels * frames).astype(np.int16)

    parts = pcm.split_channels(samples, channels)

    assert [part.tolist() for part in parts] == [
        samples[channel::channels].tolist() for channel in range(channels)
    ]
    assert all(part.flags.c_contiguous for part in parts)


def test_a_broken_frame_is_refused():
    with pytest.raises(ValueError, match="2-channel"):
        pcm.split_channels(np.zeros(3, np.int16), 2)
    with pytest.raises(ValueError, match="channels"):
        pcm.split_channels(np.zeros(3, np.int16), 0)


def read_by_libsndfile(data: bytes, subtype: str, endian: str) -> list[int]:
    """An independent decoder's int16 samples of raw mono bytes."""
    samples, _ = soundfile.read(
        io.BytesIO(data),
        samplerate=8000,
        channels=1,
        format="RAW",
        subtype=subtype,
        endian=endian,
        dtype="int16",
    )
    return samples.tolist()


@pytest.mark.parametrize(
    ("encoding", "subtype", "endian"),
    [
        (Encoding.PCM_S16LE, "PCM_16", "LITTLE"),
        (Encoding.PCM_S16BE, "PCM_16", "BIG"),
        (Encoding.PCM_U8, "PCM_U8", "FILE"),
        (Encoding.MULAW, "ULAW", "FILE"),
        (Encoding.ALAW, "ALAW", "FILE"),
    ],
)
def test_every_value_decodes_as_libsndfile_decodes_it(encoding, subtype, endian):
    data = bytes(range(256))
    if encoding.sample_bytes == 2:
        data = np.arange(65536, dtype=np.uint16).tobytes()

    assert pcm.decode(data, encoding).tolist() == read_by_libsndfile(data, subtype, endian)


def exact_int16(value: float) -> int:
    """The rule of the contract in exact arithmetic: scale, round halves to even, clip."""
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return 32767 if value > 0 else -32768
    return max(-32768, min(32767, round(Fraction(value) * 32768)))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.floats(width=32)
        | st.integers(-70_000, 70_000).map(lambda half_steps: half_steps / 65_536)
        | st.sampled_from([1.0, -1.0, 32767.5 / 32768, -32768.5 / 32768, math.nan, math.inf]),
        max_size=20,
    )
)
def test_floats_become_the_nearest_sample_of_the_exact_rule(values):
    stored = struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values))

    decoded = pcm.decode(struct.pack(f"<{len(values)}f", *values), Encoding.PCM_F32LE)

    assert decoded.tolist() == [exact_int16(value) for value in stored]
