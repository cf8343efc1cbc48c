import io

import numpy as np
import pytest
import soundfile

from oasr.audio import g711
from tests.support.g711 import alaw_value, mulaw_value

CODES = bytes(range(256))


def test_every_mulaw_code_decodes_to_the_value_of_the_recommendation():
    assert g711.mulaw_to_linear(CODES).tolist() == [mulaw_value(code) for code in range(256)]


def test_every_alaw_code_decodes_to_the_value_of_the_recommendation():
    assert g711.alaw_to_linear(CODES).tolist() == [alaw_value(code) for code in range(256)]


@pytest.mark.parametrize(
    ("code", "value"), [(0x00, -32124), (0x80, 32124), (0x7F, 0), (0xFF, 0), (0x0F, -16764)]
)
def test_known_mulaw_codes(code, value):
    assert g711.mulaw_to_linear(bytes([code])).tolist() == [value]


@pytest.mark.parametrize(
    ("code", "value"), [(0xD5, 8), (0x55, -8), (0xAA, 32256), (0x2A, -32256), (0x00, -5504)]
)
def test_known_alaw_codes(code, value):
    assert g711.alaw_to_linear(bytes([code])).tolist() == [value]


@pytest.mark.parametrize("subtype", ["ULAW", "ALAW"])
def test_decoding_agrees_with_libsndfile(subtype):
    decode = g711.mulaw_to_linear if subtype == "ULAW" else g711.alaw_to_linear
    expected, _ = soundfile.read(
        io.BytesIO(CODES),
        samplerate=8000,
        channels=1,
        format="RAW",
        subtype=subtype,
        dtype="int16",
    )

    assert decode(CODES).tolist() == expected.tolist()


@pytest.mark.parametrize("subtype", ["ULAW", "ALAW"])
def test_encoding_every_sample_agrees_with_libsndfile(subtype):
    encode = g711.linear_to_mulaw if subtype == "ULAW" else g711.linear_to_alaw
    samples = np.arange(-32768, 32768).astype(np.int16)
    expected = io.BytesIO()
    soundfile.write(expected, samples, 8000, format="RAW", subtype=subtype)

    assert encode(samples) == expected.getvalue()


def test_mulaw_encoding_errs_by_half_a_step_at_most():
    samples = np.arange(-32635, 32636).astype(np.int16)

    for sample, code in zip(samples.tolist(), g711.linear_to_mulaw(samples), strict=True):
        step = 8 << (((code ^ 0xFF) >> 4) & 7)
        assert abs(mulaw_value(code) - sample) <= step // 2


def test_alaw_encoding_errs_by_half_a_step_at_most():
    samples = np.arange(-32767, 32768).astype(np.int16)

    for sample, code in zip(samples.tolist(), g711.linear_to_alaw(samples), strict=True):
        step = 16 << max(((code ^ 0x55) >> 4 & 7) - 1, 0)
        assert abs(alaw_value(code) - sample) <= step // 2


@pytest.mark.parametrize(
    ("decode", "encode"),
    [
        (g711.mulaw_to_linear, g711.linear_to_mulaw),
        (g711.alaw_to_linear, g711.linear_to_alaw),
    ],
)
def test_decoded_levels_survive_another_encoding(decode, encode):
    levels = decode(CODES)

    assert decode(encode(levels)).tolist() == levels.tolist()


def test_silence_decodes_to_silence():
    assert not g711.mulaw_to_linear(b"\xff" * 160).any()
    assert set(g711.alaw_to_linear(b"\xd5" * 160).tolist()) == {8}


def test_nothing_decodes_to_nothing():
    assert g711.mulaw_to_linear(b"").shape == (0,)
    assert g711.alaw_to_linear(b"").dtype == np.int16
    assert g711.linear_to_mulaw(np.zeros(0, np.int16)) == b""


def test_decoded_samples_may_be_changed_without_harm():
    first = g711.mulaw_to_linear(b"\x00")
    first[0] = 1

    assert g711.mulaw_to_linear(b"\x00").tolist() == [-32124]
