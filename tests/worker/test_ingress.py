"""Messages in the shapes of other systems become chunks of our own, or dead letters with a code."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.pcm import Encoding
from tests.support.calls import chunk as native
from tests.support.calls import control, hushed, spoken
from tests.support.ingress import AUDIOHOOK, TELNYX, TWILIO, example, media, said_by
from tests.support.messages import parsed, refused
from tests.support.partitions import Desk, header
from worker.codec import Chunk, ChunkDefaults, Event, parse_chunk
from worker.errors import CodecError, ErrorCode
from worker.ingress import READERS
from worker.messages import RawMessage

MEDIA_STREAMS = [TWILIO, TELNYX]
SHAPES = [TWILIO, TELNYX, AUDIOHOOK]
DEFAULTS = ChunkDefaults()


def chunk(raw: RawMessage, defaults: ChunkDefaults = DEFAULTS) -> Chunk:
    return parsed(raw, defaults)


def refusal(raw: RawMessage, defaults: ChunkDefaults = DEFAULTS) -> CodecError:
    return refused(raw, defaults)


# Twilio and Telnyx


@pytest.mark.parametrize("shape", MEDIA_STREAMS)
def test_a_media_message_is_a_mulaw_chunk_of_its_track(shape):
    inbound = chunk(said_by(shape, media("inbound", b"\x01\x02", "4", "60")))
    outbound = chunk(said_by(shape, media("outbound", b"\x03", 9, 160)))

    assert (inbound.event, inbound.audio) == (Event.AUDIO, b"\x01\x02")
    assert (inbound.encoding, inbound.sample_rate) == (Encoding.MULAW, 8000)
    assert (inbound.channel, inbound.sequence, inbound.position_ms) == (0, 4, 60)
    assert (outbound.channel, outbound.sequence, outbound.position_ms) == (1, 9, 160)
    assert outbound.width == 1


@pytest.mark.parametrize("shape", MEDIA_STREAMS)
def test_a_media_message_without_number_and_time_says_neither(shape):
    value = media("inbound", b"\x01", None, None)
    del value["media"]["chunk"]

    parsed = chunk(said_by(shape, value))

    assert (parsed.sequence, parsed.position_ms) == (None, None)


@pytest.mark.parametrize("shape", MEDIA_STREAMS)
def test_headers_restate_what_the_message_does_not(shape):
    raw = said_by(
        shape,
        media("inbound", b"\x01\x02", "4", "60"),
        encoding="pcm_s16be",
        sample_rate="16000",
        roles="customer,agent",
        options='{"partials": false}',
        priority="2",
    )

    parsed = chunk(raw)

    assert (parsed.encoding, parsed.sample_rate) == (Encoding.PCM_S16BE, 16_000)
    assert (parsed.roles, parsed.channels, parsed.priority) == (("customer", "agent"), 2, 2)
    assert parsed.options.partials is False


def test_what_the_message_says_itself_is_not_taken_from_headers():
    own = {"event": "abort", "channel": "1", "sequence": "77", "position_ms": "9"}
    own["discarded_ms"] = "500"

    said = chunk(said_by(TWILIO, media("inbound", b"\x01", "4", "60"), **own))
    stopped = chunk(said_by(TWILIO, {"event": "stop"}, **own))

    assert (said.event, said.channel, said.sequence, said.position_ms) == (Event.AUDIO, 0, 4, 60)
    assert (said.discarded_ms, stopped.discarded_ms) == (0, 0)
    assert (stopped.event, stopped.channel, stopped.sequence) == (Event.END, None, None)


@pytest.mark.parametrize("shape", MEDIA_STREAMS)
@pytest.mark.parametrize("event", ["connected", "dtmf", "mark", "error"])
def test_what_carries_nothing_of_the_call_is_a_sign_of_life(shape, event):
    parsed = chunk(said_by(shape, {"event": event, event: {"digit": "1"}}))

    assert (parsed.event, parsed.audio) == (Event.KEEPALIVE, None)


@pytest.mark.parametrize(
    ("tracks", "channel"),
    [(["inbound", "outbound"], 0), (["inbound"], 0), (["outbound"], 1), (None, 0), ("odd", 0)],
)
def test_a_start_begins_the_session_with_the_first_track(tracks, channel):
    stated = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    value = {"event": "start", "start": {"tracks": tracks, "mediaFormat": stated}}

    parsed = chunk(said_by(TWILIO, value))

    assert (parsed.event, parsed.channel, parsed.position_ms) == (Event.START, channel, 0)
    assert (parsed.encoding, parsed.sample_rate, parsed.width) == (Encoding.MULAW, 8000, 1)


@pytest.mark.parametrize(
    ("stated", "headers"),
    [
        ({"encoding": "PCMU", "sample_rate": 8000}, {}),
        ({"encoding": "PCMU", "sample_rate": "8000"}, {}),
        ({"encoding": "PCMA", "sample_rate": 8000}, {"encoding": "alaw"}),
        ({"encoding": "L16", "sample_rate": 16000}, {"encoding": "pcm_s16le"}),
        ({"encoding": "L16", "sample_rate": 16000}, {"encoding": "pcm_s16be"}),
        ({}, {}),
    ],
)
def test_a_start_agrees_with_the_format_that_we_read(stated, headers):
    rate = str(stated.get("sample_rate", 8000))
    value = {"event": "start", "start": {"media_format": stated}}

    assert chunk(said_by(TELNYX, value, sample_rate=rate, **headers)).event is Event.START


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ({"encoding": "PCMA", "sample_rate": 8000}, "encoding"),
        ({"encoding": "OPUS", "sample_rate": 8000}, "encoding"),
        ({"encoding": "G722", "sample_rate": 8000}, "encoding"),
        ({"encoding": "PCMU", "sample_rate": 16000}, "sample_rate"),
        ({"encoding": "PCMU", "sample_rate": True}, "sample_rate"),
    ],
)
def test_a_start_of_another_format_than_we_read_is_refused(stated, name):
    error = refusal(said_by(TELNYX, {"event": "start", "start": {"media_format": stated}}))

    assert error.code is ErrorCode.ENCODING_UNSUPPORTED
    assert f"another {name}" in error.message


@pytest.mark.parametrize("shape", MEDIA_STREAMS)
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({}, ErrorCode.INVALID_ENVELOPE),
        ({"event": "hangup"}, ErrorCode.INVALID_ENVELOPE),
        ({"event": ["media"]}, ErrorCode.INVALID_ENVELOPE),
        ({"event": "media"}, ErrorCode.INVALID_ENVELOPE),
        ({"event": "media", "media": []}, ErrorCode.INVALID_ENVELOPE),
        ({"event": "media", "media": {"track": "inbound"}}, ErrorCode.INVALID_ENVELOPE),
        ({"event": "media", "media": {"payload": "AQ=="}}, ErrorCode.INVALID_ENVELOPE),
        ({"event": "start"}, ErrorCode.INVALID_ENVELOPE),
        (
            {"event": "start", "start": {"mediaFormat": 1, "media_format": 1}},
            ErrorCode.INVALID_ENVELOPE,
        ),
        (media("both", b"", "1", "0"), ErrorCode.INVALID_ENVELOPE),
        (media("inbound", b"", "one", "0"), ErrorCode.INVALID_HEADER),
        (media("inbound", b"", -1, "0"), ErrorCode.INVALID_HEADER),
        (media("inbound", b"", True, "0"), ErrorCode.INVALID_HEADER),
        (media("inbound", b"", "1", "soon"), ErrorCode.INVALID_HEADER),
        (media("inbound", b"", "1", {}), ErrorCode.INVALID_HEADER),
        (media("inbound", b"", "1" * 2000, "0"), ErrorCode.HEADER_TOO_LARGE),
        (["media"], ErrorCode.INVALID_ENVELOPE),
        (b"{", ErrorCode.INVALID_ENVELOPE),
        (b"", ErrorCode.INVALID_ENVELOPE),
    ],
)
def test_a_message_that_is_none_of_the_shape_is_refused(shape, value, code):
    assert refusal(said_by(shape, value)).code is code


def test_a_payload_that_is_no_base64_is_refused():
    value = media("inbound", b"\x01", "1", "0")
    value["media"]["payload"] = "not base64!"

    assert refusal(said_by(TWILIO, value)).code is ErrorCode.INVALID_ENVELOPE


def test_the_key_of_the_message_is_the_session_whatever_the_value_names():
    value = {**media("inbound", b"\x01", "1", "0"), "streamSid": "MZ1"}

    assert chunk(said_by(TWILIO, value, key=b"call-9")).session_id == "call-9"
    raw = said_by(TWILIO, value)
    keyless = RawMessage(raw.topic, 0, 0, 1, None, raw.value, raw.headers)
    assert refusal(keyless).code is ErrorCode.KEY_REQUIRED


# AudioHook


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("close", Event.END),
        ("paused", Event.FLUSH),
        ("ping", Event.KEEPALIVE),
        ("dtmf", Event.KEEPALIVE),
        ("update", Event.KEEPALIVE),
        ("opened", Event.KEEPALIVE),
        ("disconnect", Event.KEEPALIVE),
    ],
)
def test_an_audiohook_message_is_a_control_message(kind, event):
    raw = said_by(AUDIOHOOK, {"version": "2", "type": kind, "position": "PT1.5S", "seq": 4})

    parsed = chunk(raw)

    assert (parsed.event, parsed.audio, parsed.sequence) == (event, None, None)


@pytest.mark.parametrize(
    ("position", "position_ms"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1500),
        ("PT2M3.25S", 123_250),
        ("PT1H", 3_600_000),
        ("PT0.0004S", 0),
        ("PT999999H", 3_599_996_400_000),
    ],
)
def test_an_audiohook_open_begins_the_session_where_it_says(position, position_ms):
    raw = said_by(
        AUDIOHOOK,
        {"type": "open", "position": position},
        encoding="mulaw",
        sample_rate="8000",
        channels="2",
    )

    parsed = chunk(raw)

    assert (parsed.event, parsed.position_ms, parsed.width) == (Event.START, position_ms, 2)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"type": "opening"},
        {"type": 1},
        {"type": {"open": 1}},
        {"type": "open", "position": "1.5"},
        {"type": "open", "position": "PT"},
        {"type": "open", "position": "P1D"},
        {"type": "open", "position": 1.5},
        {"type": "open", "position": "PT-1S"},
        {"type": "open", "position": "PT١S"},
    ],
)
def test_an_audiohook_message_that_makes_no_sense_is_refused(value):
    assert refusal(said_by(AUDIOHOOK, value)).code is ErrorCode.INVALID_ENVELOPE


# All shapes


def test_a_worker_may_take_values_without_a_type_for_one_of_the_shapes():
    defaults = ChunkDefaults(content_type=TWILIO)
    value = json.dumps(media("inbound", b"\x01", "1", "0")).encode()
    untyped = RawMessage("chunks", 0, 0, 1, b"call", value, ())
    control_message = RawMessage("chunks", 0, 0, 1, b"call", b"", (("event", b"end"),))

    assert chunk(untyped, defaults).audio == b"\x01"
    assert chunk(control_message, defaults).event is Event.END
    typed = said_by("application/octet-stream", b"\x02", encoding="alaw", sample_rate="8000")
    assert chunk(typed, defaults).audio == b"\x02"


@pytest.mark.parametrize(
    "content_type",
    ["application/cloudevents+json", "text/json", "application/vnd.twilio.call+json"],
)
def test_json_of_a_type_that_we_do_not_read_is_never_taken_for_audio(content_type):
    raw = said_by(content_type, {"event": "media"}, encoding="mulaw", sample_rate="8000")

    assert refusal(raw).code is ErrorCode.ENCODING_UNSUPPORTED


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tombstone_stays_one_in_every_shape(shape):
    raw = said_by(shape, b"")
    tombstone = RawMessage("chunks", 0, 0, 1, b"call", None, raw.headers)

    assert parse_chunk(tombstone, DEFAULTS) is None


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
        st.sampled_from(["inbound", "outbound", "AQ==", "PT1.5S", "PCMU", "3", "1e9", "-1"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["track", "chunk", "timestamp", "payload", "tracks", "media_format"])
            | st.sampled_from(["mediaFormat", "encoding", "sampleRate", "sample_rate"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=10,
)
events = st.sampled_from(["media", "start", "stop", "mark", "open", "close", "resumed", "ping"])
bodies = st.fixed_dictionaries(
    {},
    optional={
        "event": st.one_of(events, json_values),
        "type": st.one_of(events, json_values),
        "media": json_values,
        "start": json_values,
        "position": json_values,
        "parameters": json_values,
    },
)
values = st.one_of(st.binary(max_size=40), json_values.map(orjson.dumps), bodies.map(orjson.dumps))
header_values = st.sampled_from([b"mulaw", b"8000", b"2", b"1", b"end", b"\xff", b"{}", b"opus"])
header_pairs = st.lists(
    st.tuples(
        st.sampled_from(["encoding", "sample_rate", "channels", "channel", "event", "sequence"]),
        header_values,
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(sorted(READERS)), values, header_pairs)
def test_no_value_of_any_shape_raises_anything_but_a_refusal(shape, value, pairs):
    headers = (("content-type", shape.encode()), *pairs)
    outcome: Chunk | CodecError | None
    try:
        outcome = parse_chunk(RawMessage("t", 0, 1, 0, b"call", value, headers), DEFAULTS)
    except CodecError as error:
        outcome = error

    assert isinstance(outcome, Chunk | CodecError)


# Through a partition


def of_native(raw: RawMessage, shape: str) -> RawMessage:
    """One of our own mono messages in the shape of a media stream."""
    said = dict(raw.headers)
    channel = int(said.get("channel") or b"0")
    number = int(said["sequence"] or b"0")
    value = media(("inbound", "outbound")[channel], raw.value or b"", str(number), None)
    assert raw.key is not None
    return said_by(shape, value, key=raw.key, roles="customer,agent")


@pytest.mark.parametrize("shape", MEDIA_STREAMS)
def test_a_call_in_the_shape_of_a_media_stream_says_what_the_same_call_says_natively(shape):
    tracks = [spoken(1.2, seed=3) + hushed(1.5), hushed(1.0) + spoken(1.1, seed=4) + hushed(0.6)]
    numbered = [
        native(
            "c",
            track[at : at + 160],
            channel=channel,
            sequence=at // 160 + 1,
            roles="customer,agent",
        )
        for at in range(0, max(map(len, tracks)), 160)
        for channel, track in enumerate(tracks)
        if at < len(track)
    ]
    ours, theirs = Desk([]), Desk([])

    ours.arrive(*numbered, control("c", "end"))
    theirs.arrive(
        *(of_native(raw, shape) for raw in numbered), said_by(shape, {"event": "stop"}, key=b"c")
    )
    ours.settle()
    theirs.settle()

    assert ours.finals()
    assert theirs.finals() == ours.finals()
    assert theirs.events().keys() == ours.events().keys()
    assert [ended["totals"] for ended in theirs.told("ended")] == [
        ended["totals"] for ended in ours.told("ended")
    ]


@pytest.mark.parametrize("numbered", [True, False])
def test_numbers_that_count_both_tracks_cost_gaps_of_no_length_and_left_out_nothing(numbered):
    desk = Desk([])
    desk.arrive(
        *(
            said_by(
                TWILIO,
                media(track, audio, str(2 * n + side) if numbered else None, str(20 * n)),
                key=b"c",
                roles="customer,agent",
            )
            for n in range(60)
            for side, (track, audio) in enumerate(
                (("inbound", spoken(0.02)), ("outbound", hushed(0.02)))
            )
        ),
        said_by(TWILIO, {"event": "stop"}, key=b"c"),
    )
    desk.settle()

    (ended,) = desk.told("ended")
    assert [total["received"]["samples"] for total in ended["totals"]] == [60 * 160] * 2
    assert not any(total["dropped"] for total in ended["totals"])
    gaps = [event["gap"] for event in desk.told("gap")]
    assert len(gaps) == (2 * 59 if numbered else 0)
    assert all(gap["start_sample"] == gap["end_sample"] for gap in gaps)


@pytest.mark.parametrize("name", ["twilio", "telnyx"])
def test_the_example_of_a_media_stream_is_a_call_of_two_channels(name):
    desk = Desk(example(name))

    desk.run()

    assert desk.dead_letters() == []
    (started,), (ended,) = desk.told("started"), desk.told("ended")
    assert started["session_id"] == "call-7f3a"
    assert ended["reason"] == "end"
    assert [(t["channel"], t["role"], t["received"]["samples"]) for t in ended["totals"]] == [
        (0, "customer", 1920),
        (1, "agent", 1920),
    ]
    assert desk.told("gap") == []


def test_the_example_of_audiohook_is_a_stereo_call_with_a_pause():
    desk = Desk(example("audiohook"))

    desk.run()

    assert desk.dead_letters() == []
    (ended,) = desk.told("ended")
    assert (ended["reason"], ended["channels"]) == ("end", 2)
    assert [total["role"] for total in ended["totals"]] == ["customer", "agent"]
    assert len({header(record, "ce_id") for record in desk.all_records()}) >= 2


def test_a_message_that_is_none_of_its_shape_is_a_dead_letter_and_harms_no_call():
    good = example("twilio")
    bad = said_by(TWILIO, {"event": "media", "media": {"track": "sideways"}}, key=b"call-7f3a")
    plain, disturbed = Desk([]), Desk([])

    plain.arrive(*good)
    disturbed.arrive(*good[:9], bad, *good[9:])
    plain.settle()
    disturbed.settle()

    (letter,) = disturbed.dead_letters()
    assert header(letter, "error.code") == "invalid_envelope"
    assert letter.value == bad.value
    assert disturbed.told("ended")[0]["totals"] == plain.told("ended")[0]["totals"]
