"""Everything a producer can send becomes a chunk, a job, nothing, or a CodecError."""

from __future__ import annotations

import base64
import json
import tracemalloc

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.pcm import Encoding
from tests.support.messages import (
    TRACEPARENT,
    audio_message,
    headers,
    message,
    parsed,
    refused,
)
from worker.codec import Chunk, ChunkDefaults, Event, FileJob, parse_chunk, parse_file
from worker.errors import CodecError, ErrorCode
from worker.messages import RawMessage
from worker.options import SessionOptions

DEFAULTS = ChunkDefaults()


def chunk(raw: RawMessage, defaults: ChunkDefaults = DEFAULTS) -> Chunk:
    return parsed(raw, defaults)


def refusal(raw: RawMessage, defaults: ChunkDefaults = DEFAULTS) -> ErrorCode:
    return refused(raw, defaults).code


def envelope(value: object, **values: str) -> RawMessage:
    return message(orjson.dumps(value), content_type="application/json", **values)


def test_a_chunk_has_everything_that_its_headers_say():
    raw = audio_message(
        b"\x01\x02\x03\x04",
        channels="2",
        roles="customer, agent",
        sequence="41",
        position_ms="1500.5",
        event="audio",
        options='{"partials": false}',
        priority="3",
        traceparent=TRACEPARENT,
    )

    assert chunk(raw) == Chunk(
        session_id="call-1",
        event=Event.AUDIO,
        audio=b"\x01\x02\x03\x04",
        encoding=Encoding.MULAW,
        sample_rate=8_000,
        channels=2,
        channel=None,
        roles=("customer", "agent"),
        sequence=41,
        position_ms=1501,
        options=SessionOptions(partials=False),
        priority=3,
        traceparent=TRACEPARENT,
    )
    assert chunk(raw).width == 2


def test_a_chunk_that_says_little_is_mono_audio_of_the_default_encoding():
    defaults = ChunkDefaults(encoding=Encoding.PCM_S16LE, sample_rate=16_000)

    parsed = chunk(message(b"\0\0"), defaults)

    assert (parsed.event, parsed.encoding, parsed.sample_rate) == (
        Event.AUDIO,
        Encoding.PCM_S16LE,
        16_000,
    )
    assert (parsed.channels, parsed.channel, parsed.width, parsed.priority) == (1, None, 1, 0)


@pytest.mark.parametrize(
    ("event", "expected"),
    [(None, None), ("audio", None), ("end", Event.END), ("keepalive", Event.KEEPALIVE)],
)
def test_a_null_value_is_a_tombstone_unless_an_event_asks_for_something(event, expected):
    values = {} if event is None else {"event": event}

    parsed = parse_chunk(message(None, **values), DEFAULTS)

    assert (parsed and parsed.event) == expected
    assert parsed is None or parsed.audio is None


def test_a_tombstone_needs_no_key():
    assert parse_chunk(message(None, key=None), DEFAULTS) is None


def test_an_empty_value_is_a_chunk_of_no_samples():
    assert chunk(audio_message(b"")).audio == b""
    assert refusal(message(b"")) is ErrorCode.ENCODING_REQUIRED


def test_the_last_chunk_may_carry_audio_and_the_end():
    assert chunk(audio_message(b"\x01", event="end")).audio == b"\x01"
    assert refusal(message(b"\x01", event="end")) is ErrorCode.ENCODING_REQUIRED
    assert chunk(message(b"", event="end")).encoding is None


@pytest.mark.parametrize("event", ["start", "abort", "flush", "keepalive"])
def test_no_other_event_carries_audio(event):
    assert chunk(message(None, event=event)).event == event
    assert chunk(message(b"", event=event)).audio == b""
    assert refusal(audio_message(b"\x01", event=event)) is ErrorCode.INVALID_HEADER


@pytest.mark.parametrize("encoding", list(Encoding))
def test_every_encoding_is_known_by_its_wire_name(encoding):
    assert chunk(audio_message(b"\0" * 4, encoding=encoding.value)).encoding is encoding


def test_audio_without_encoding_or_rate_is_refused():
    assert refusal(message(sample_rate="8000")) is ErrorCode.ENCODING_REQUIRED
    assert refusal(message(encoding="mulaw")) is ErrorCode.SAMPLE_RATE_REQUIRED
    assert refusal(audio_message(encoding="opus")) is ErrorCode.ENCODING_UNSUPPORTED


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (None, ErrorCode.KEY_REQUIRED),
        (b"", ErrorCode.KEY_INVALID),
        (b"k" * 257, ErrorCode.KEY_INVALID),
        (b"\xff\xfe", ErrorCode.KEY_INVALID),
        (b"call\n1", ErrorCode.KEY_INVALID),
        ("call\u202e1".encode(), ErrorCode.KEY_INVALID),
    ],
)
def test_a_key_that_names_no_session_is_refused(key, code):
    raw = audio_message()

    assert refusal(RawMessage(raw.topic, 0, 1, 0, key, raw.value, raw.headers)) is code


@pytest.mark.parametrize("key", [b"k", b"k" * 256, "гудок-7".encode()])
def test_a_key_of_1_to_256_bytes_is_the_session_id(key):
    raw = audio_message()

    parsed = chunk(RawMessage(raw.topic, 0, 1, 0, key, raw.value, raw.headers))

    assert parsed.session_id == key.decode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sample_rate", "3999"),
        ("sample_rate", "192001"),
        ("sample_rate", " 8000"),
        ("sample_rate", "8e3"),
        ("sample_rate", "٨٠٠٠"),
        ("sample_rate", "9" * 400),
        ("channels", "0"),
        ("channels", "9"),
        ("channel", "-1"),
        ("channel", "8"),
        ("sequence", "-1"),
        ("sequence", "1.0"),
        ("sequence", "9" * 18),
        ("position_ms", "-1"),
        ("position_ms", "nan"),
        ("discarded_ms", "-1"),
        ("discarded_ms", "123456789"),
        ("position_ms", "1e400"),
        ("event", "AUDIO"),
        ("event", ""),
        ("priority", "high"),
        ("roles", "agent,,customer"),
        ("roles", "a" * 65),
        ("roles", ",".join("abcdefghi")),
        ("roles", "agent;customer"),
    ],
)
def test_a_header_without_a_legal_value_is_refused(name, value):
    assert refusal(audio_message(**{name: value})) is ErrorCode.INVALID_HEADER


@pytest.mark.parametrize("name", ["sample_rate", "event", "options", "traceparent", "roles"])
def test_a_header_that_is_not_utf8_is_refused(name):
    assert refusal(audio_message(**{name: b"\xff"})) is ErrorCode.INVALID_HEADER


def test_a_channel_lies_below_the_number_of_channels():
    assert chunk(audio_message(channel="1", channels="2")).width == 1
    assert chunk(audio_message(channel="1", roles="agent,customer")).channels == 2
    assert chunk(audio_message(channel="3")).channels == 4
    assert refusal(audio_message(channel="2", channels="2")) is ErrorCode.INVALID_HEADER


def test_there_are_no_more_roles_than_channels():
    assert chunk(audio_message(channels="2", roles="agent")).roles == ("agent",)
    assert refusal(audio_message(roles="agent,customer")) is ErrorCode.INVALID_HEADER


def test_a_negative_priority_is_the_most_urgent():
    assert chunk(audio_message(priority="-4")).priority == 0


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        TRACEPARENT.upper(),
        TRACEPARENT + "-more",
        "ff" + TRACEPARENT[2:],
        "x" * 55,
    ],
)
def test_a_malformed_trace_context_is_dropped_and_not_refused(trace):
    assert chunk(audio_message(traceparent=trace)).traceparent is None


def test_a_trace_context_of_a_later_version_is_kept():
    later = "01" + TRACEPARENT[2:] + "-more"

    assert chunk(audio_message(traceparent=later)).traceparent == later


def test_of_repeated_headers_the_last_counts_and_null_ones_count_for_nothing():
    twice = audio_message(sequence="1", extra=headers(sequence="2") + headers(sequence=None))

    assert chunk(twice).sequence == 2


def test_unknown_headers_are_no_concern_of_ours():
    assert chunk(audio_message(extra=(("x-trace", b"\xff" * 5000),))).sequence is None


def test_values_and_headers_have_a_largest_size():
    small = ChunkDefaults(max_value_bytes=160)
    assert chunk(audio_message(b"\0" * 160), small).audio is not None
    assert refusal(audio_message(b"\0" * 161), small) is ErrorCode.VALUE_TOO_LARGE
    assert refusal(audio_message(roles="a" * 1025)) is ErrorCode.HEADER_TOO_LARGE
    assert refusal(audio_message(options=" " * 16385)) is ErrorCode.HEADER_TOO_LARGE


def test_an_envelope_says_the_same_as_headers_and_raw_bytes():
    raw = audio_message(
        b"\x01\x02",
        channels="2",
        roles="customer,agent",
        sequence="4",
        options='{"lenient":true}',
        traceparent=TRACEPARENT,
    )
    wrapped = envelope(
        {
            "encoding": "mulaw",
            "sample_rate": 8000,
            "channels": "2",
            "roles": ["customer", "agent"],
            "sequence": 4,
            "options": {"lenient": True},
            "audio": base64.b64encode(b"\x01\x02").decode(),
            "priority": None,
        },
        traceparent=TRACEPARENT,
    )

    assert chunk(wrapped) == chunk(raw)


def test_a_field_of_the_envelope_wins_over_the_header_of_its_name():
    wrapped = envelope({"audio": "AQ==", "sample_rate": 16000}, encoding="alaw", sample_rate="8000")

    assert chunk(wrapped).sample_rate == 16_000
    assert chunk(wrapped).encoding is Encoding.ALAW


def test_an_envelope_without_audio_is_a_control_message():
    assert chunk(envelope({"event": "flush"})).audio is None
    assert chunk(envelope({"event": "end"})).event is Event.END


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"event": "audio"},
        {"audio": "not base64!"},
        {"audio": "äöü"},
        {"audio": 12},
        {"audio": "AQ==", "sample_rat": 8000},
        [],
        "text",
        None,
    ],
)
def test_an_envelope_that_makes_no_sense_is_refused(value):
    assert refusal(envelope(value)) is ErrorCode.INVALID_ENVELOPE


@pytest.mark.parametrize("value", [b"{", b"\xff", b"[" * 5000, b""])
def test_an_envelope_that_is_not_json_is_refused(value):
    raw = message(value, content_type="application/json; charset=utf-8")

    assert refusal(raw) is ErrorCode.INVALID_ENVELOPE


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("channels", True, ErrorCode.INVALID_HEADER),
        ("channels", 2.0, ErrorCode.INVALID_HEADER),
        ("sequence", 10**30, ErrorCode.INVALID_HEADER),
        ("roles", ["agent", 1], ErrorCode.INVALID_HEADER),
        ("roles", {"a": 1}, ErrorCode.INVALID_HEADER),
        ("roles", "a" * 2000, ErrorCode.HEADER_TOO_LARGE),
        ("options", [], ErrorCode.INVALID_HEADER),
        ("options", {"wordings": []}, ErrorCode.OPTION_UNSUPPORTED),
    ],
)
def test_a_field_of_an_envelope_is_checked_like_a_header(field, value, code):
    raw = message(
        json.dumps(
            {"audio": "AQ==", "encoding": "mulaw", "sample_rate": 8000, field: value}
        ).encode(),
        content_type="application/json",
    )

    assert refusal(raw) is code


def test_options_that_are_nested_without_end_are_refused():
    deep = b'{"audio":"","options":' + b'{"a":' * 400 + b"1" + b"}" * 400 + b"}"

    assert refusal(message(deep, content_type="application/json")) is ErrorCode.INVALID_OPTIONS


names = st.sampled_from(
    [
        *("encoding", "sample_rate", "channels", "channel", "roles", "sequence", "position_ms"),
        *("discarded_ms", "event", "options", "priority", "traceparent", "content-type"),
    ]
)
likely = st.sampled_from(
    [
        *(b"mulaw", b"8000", b"2", b"1", b"agent", b"end", b"audio", b"{}", b"application/json"),
        *(b"audio/wav", b"-1", b"1e9", b"\xff", b"[" * 2000, b'{"endpointing":{}}'),
    ]
)
anything = st.one_of(
    likely, st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode)
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(max_size=10)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
envelopes = st.dictionaries(st.one_of(names, st.just("audio")), json_values, max_size=6)
values = st.one_of(anything, envelopes.map(orjson.dumps))


@settings(deadline=None, max_examples=600)
@given(
    key=st.one_of(st.just(b"call"), st.none(), st.binary(max_size=300)),
    value=values,
    pairs=st.lists(st.tuples(names, anything), max_size=8),
)
def test_no_message_raises_anything_but_a_codec_error(key, value, pairs):
    raw = RawMessage("t", 0, 1, 0, key, value, tuple(pairs))
    chunk_outcome = outcome(lambda: parse_chunk(raw, DEFAULTS))
    file_outcome = outcome(lambda: parse_file(raw))

    assert isinstance(chunk_outcome, Chunk | CodecError | None)
    assert isinstance(file_outcome, FileJob | CodecError | None)


def outcome(parse):
    """What a parser returns, or the CodecError that it raises."""
    try:
        return parse()
    except CodecError as error:
        return error


# The file topic


def job(raw: RawMessage) -> FileJob:
    parsed = parse_file(raw)
    assert parsed is not None
    return parsed


def job_refusal(raw: RawMessage) -> ErrorCode:
    with pytest.raises(CodecError) as caught:
        parse_file(raw)
    return caught.value.code


def test_a_file_message_with_audio_content_is_the_file():
    raw = message(
        b"RIFF", key=b"f-1", content_type="audio/wav", roles="agent", options='{"emit_empty":true}'
    )

    assert job(raw) == FileJob(
        "f-1", b"RIFF", None, roles=("agent",), options=SessionOptions(emit_empty=True)
    )


def test_a_file_message_with_json_is_a_claim_check():
    value = {
        "uri": "file:///data/a%20b.wav",
        "sha256": "0" * 64,
        "size_bytes": 12,
        "options": {"partials": False},
        "roles": ["agent", "customer"],
        "priority": 2,
    }
    for content in ({}, {"content_type": "Application/JSON"}):
        assert job(message(orjson.dumps(value), key=b"f-1", **content)) == FileJob(
            "f-1",
            None,
            "file:///data/a%20b.wav",
            sha256="0" * 64,
            size_bytes=12,
            roles=("agent", "customer"),
            options=SessionOptions(partials=False),
            priority=2,
        )


def test_a_null_file_message_is_a_tombstone():
    assert parse_file(message(None, key=None)) is None


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"uri": "a.wav"},
        {"uri": 5},
        {"uri": "file:///a\nb"},
        {"uri": "file:///" + "a" * 3000},
        {"uri": "file:///a", "sha256": "F" * 64},
        {"uri": "file:///a", "size_bytes": -1},
        {"uri": "file:///a", "size_bytes": "12"},
        {"uri": "file:///a", "url": "x"},
        [],
    ],
)
def test_a_claim_check_that_makes_no_sense_is_refused(value):
    assert job_refusal(message(orjson.dumps(value))) is ErrorCode.INVALID_FILE_JOB


def test_a_file_message_of_another_kind_is_refused():
    assert job_refusal(message(b"x", content_type="video/mp4")) is ErrorCode.ENCODING_UNSUPPORTED
    assert job_refusal(message(b"x", key=None)) is ErrorCode.KEY_REQUIRED
    assert job_refusal(message(b"RIFF")) is ErrorCode.INVALID_FILE_JOB
    options = message(orjson.dumps({"uri": "file:///a", "options": {"x": 1}}))
    assert job_refusal(options) is ErrorCode.OPTION_UNSUPPORTED


@pytest.mark.parametrize("value", [b"\x00" * 160, b"", None])
def test_a_message_whose_headers_cannot_be_read_is_refused(value):
    raw = RawMessage("calls", 2, 7, 5, b"call-1", value, (), headers_readable=False)

    assert refusal(raw) is ErrorCode.INVALID_HEADER


def test_a_file_whose_headers_cannot_be_read_is_refused_and_a_tombstone_is_none():
    raw = RawMessage("files", 2, 7, 5, b"f", b"{}", (), headers_readable=False)

    with pytest.raises(CodecError, match="not UTF-8") as caught:
        parse_file(raw)
    assert caught.value.code is ErrorCode.INVALID_HEADER
    assert parse_file(RawMessage("files", 2, 7, 5, b"f", None, (), headers_readable=False)) is None


@pytest.mark.parametrize("value", [b"x", b"[]"])
def test_a_content_type_has_a_largest_size_like_every_header(value):
    raw = message(value, content_type="audio/" + "x" * 1_100)

    assert refusal(raw) is ErrorCode.HEADER_TOO_LARGE
    with pytest.raises(CodecError) as caught:
        parse_file(raw)
    assert caught.value.code is ErrorCode.HEADER_TOO_LARGE


def test_of_repeated_headers_only_the_last_is_looked_at():
    raw = audio_message(extra=(("roles", b"r" * 2_000), ("roles", b"\xff"), ("roles", b"agent")))

    assert chunk(raw).roles == ("agent",)


def test_headers_of_messages_that_are_gone_take_no_memory():
    tracemalloc.start()
    try:
        for number in range(600):
            repeated = tuple(("roles", b"%d-%d" % (number, n) + b"r" * 900) for n in range(60))
            refusal(message(b"x", extra=(*repeated, ("content-type", b"%d" % number * 20_000))))
            refusal(message(b"x", extra=repeated))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 5 << 20
