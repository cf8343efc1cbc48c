"""Encodings that are spelled otherwise, and those that we do not read, are refused with advice."""

from __future__ import annotations

import pytest

from oasr.audio.pcm import Encoding
from tests.support.messages import audio_message, message
from worker.codec import ChunkDefaults, parse_chunk
from worker.errors import CodecError, ErrorCode
from worker.messages import RawMessage

SPELLINGS = [
    *((name, "mulaw") for name in ("MULAW", "mu-law", "ulaw", "µ-law", "PCMU", "audio/PCMU")),
    *((name, "mulaw") for name in ("audio/x-mulaw", "g711_ulaw", "G.711u", "audio/basic")),
    *((name, "mulaw") for name in ("pcm_mulaw", "audio/PCMU;rate=8000")),
    *((name, "alaw") for name in ("ALAW", "a-law", "PCMA", "audio/x-alaw", "G711_ALAW")),
    *((name, "pcm_s16le") for name in ("linear16", "LINEAR16", "s16le", "pcm", "PCM16", "slin")),
    *((name, "pcm_s16le") for name in ("pcm-s16le", "PCM_S16LE", "lpcm", "audio/pcm")),
    *((name, "pcm_s16be") for name in ("s16be", "PCM_S16BE")),
    *((name, "pcm_f32le") for name in ("f32le", "float32", "pcm-f32le")),
    *((name, "pcm_u8") for name in ("u8", "pcm8", "PCM_U8")),
]
CODECS = [
    *((name, "Opus") for name in ("opus", "OPUS", "audio/opus", "ogg_opus", "webm-opus")),
    *((name, "G.722") for name in ("g722", "G722", "G.722", "audio/G722")),
    *((name, "G.729") for name in ("g729", "G.729", "G729A", "audio/G729")),
    *((name, "AMR") for name in ("amr", "AMR-NB", "audio/AMR")),
    *((name, "AMR-WB") for name in ("AMR-WB", "amr_wb", "audio/amr-wb")),
    *((name, "GSM") for name in ("gsm", "GSM", "audio/x-gsm", "gsm610")),
    *((name, "Speex") for name in ("speex", "audio/x-speex", "audio/x-speex-with-header-byte")),
    *(("G.723.1", "G.723.1"), ("iLBC", "iLBC"), ("mp3", "MP3"), ("aac", "AAC"), ("evs", "EVS")),
]
CONTAINERS = [("wav", "WAV"), ("audio/wav", "WAV"), ("flac", "FLAC"), ("ogg", "Ogg")]


def refusal(raw: RawMessage, defaults: ChunkDefaults | None = None) -> CodecError:
    with pytest.raises(CodecError) as caught:
        parse_chunk(raw, defaults or ChunkDefaults())
    return caught.value


@pytest.mark.parametrize(("name", "meant"), SPELLINGS)
def test_another_spelling_of_an_encoding_is_refused_with_the_right_one(name, meant):
    error = refusal(audio_message(encoding=name))

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert f"did you mean {meant}?" in error.message


@pytest.mark.parametrize("name", ["L16", "audio/L16", "audio/l16;rate=8000", "l16"])
def test_l16_has_two_byte_orders_and_the_producer_has_to_say_which(name):
    error = refusal(audio_message(encoding=name))

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert "did you mean pcm_s16be, which RTP calls L16, or pcm_s16le?" in error.message


def test_g711_is_two_laws_and_the_producer_has_to_say_which():
    assert "did you mean mulaw or alaw?" in refusal(audio_message(encoding="G.711")).message


@pytest.mark.parametrize(("name", "codec"), CODECS)
def test_a_codec_that_is_not_decoded_live_is_refused_by_name(name, codec):
    error = refusal(audio_message(encoding=name))

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert f"{codec} is not decoded live: send what it decodes to as pcm_s16le" in error.message


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_a_container_is_sent_to_the_topic_of_files(name, container):
    error = refusal(audio_message(encoding=name))

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert f"{container} is a file" in error.message
    assert "topic of files" in error.message


@pytest.mark.parametrize("name", ["", "quux", "mulaw ", "MULAW\n8000", "x" * 1000, "audio/"])
def test_an_unknown_name_is_refused_with_the_list_and_is_not_repeated(name):
    error = refusal(audio_message(encoding=name))

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert "quux" not in error.message
    assert "xxx" not in error.message
    assert any(encoding.value in error.message for encoding in Encoding)


@pytest.mark.parametrize(
    ("content_type", "code", "words"),
    [
        ("audio/opus", ErrorCode.ENCODING_UNSUPPORTED, "Opus is not decoded live"),
        ("audio/G722", ErrorCode.ENCODING_UNSUPPORTED, "G.722 is not decoded live"),
        ("audio/x-wav", ErrorCode.ENCODING_UNSUPPORTED, "WAV is a file"),
        ("audio/ogg; codecs=opus", ErrorCode.ENCODING_UNSUPPORTED, "Ogg is a file"),
        ("audio/x-mulaw", ErrorCode.ENCODING_REQUIRED, "did you mean mulaw?"),
        ("audio/l16;rate=8000", ErrorCode.ENCODING_REQUIRED, "did you mean pcm_s16be"),
        ("application/octet-stream", ErrorCode.ENCODING_REQUIRED, "no encoding"),
    ],
)
def test_a_media_type_in_the_place_of_an_encoding_is_answered_with_what_is_missing(
    content_type, code, words
):
    error = refusal(message(b"\0", content_type=content_type, sample_rate="8000"))

    assert error.code is code
    assert words in error.message


def test_a_media_type_of_something_else_wins_over_the_default_and_not_over_a_header():
    defaults = ChunkDefaults(encoding=Encoding.MULAW, sample_rate=8000)

    error = refusal(message(b"\0", content_type="audio/opus"), defaults)
    stated = parse_chunk(audio_message(b"\0", content_type="audio/opus"), defaults)
    alias = parse_chunk(message(b"\0", content_type="audio/PCMU"), defaults)

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert stated is not None
    assert stated.encoding is Encoding.MULAW
    assert alias is not None
    assert alias.encoding is Encoding.MULAW
