"""Transcript records are what the schema says, and the same audio gives the same ones."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from fractions import Fraction

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messages import TRACEPARENT
from tests.support.schemas import body, header_texts, validator
from worker.alternatives import Alternative, Word, seconds
from worker.cloudevents import Identity, ModelName, timestamp
from worker.messages import Kind
from worker.records import Gap, Hypothesis, Segment, Source, segment_id, transcript

IDENTITY = Identity("oasr-worker", ModelName("callcenter-en-tiny", "0123456789abcdef"))
NOW_MS = 1_785_000_000_007
SEGMENT = Segment(
    session_id="c-9",
    origin="3-8800",
    channel=0,
    channels=2,
    role="customer",
    segment_index=7,
    start_sample=182_400,
    end_sample=202_880,
    sample_rate=8_000,
    source=Source("oasr.audio.chunks", 3, 8_811, 8_842),
    position_ms=500,
    traceparent=TRACEPARENT,
)


def final(segment=SEGMENT, reason="silence", text="change my address"):
    hypothesis = Hypothesis((Alternative(text),), 20_480, reason)
    return transcript(IDENTITY, segment, hypothesis, {"final": 312}, NOW_MS)


def test_a_final_is_exactly_this_record():
    assert body(final()) == {
        "schema": "oasr.transcript.v1",
        "session_id": "c-9",
        "segment_id": "c-9:3-8800:0:182400",
        "segment_index": 7,
        "revision": 20_480,
        "is_final": True,
        "speech_final": True,
        "end_reason": "silence",
        "channel": 0,
        "channels": 2,
        "role": "customer",
        "start": 23.3,
        "end": 25.86,
        "start_sample": 182_400,
        "end_sample": 202_880,
        "sample_rate": 8_000,
        "alternatives": [{"transcript": "change my address"}],
        "gaps": [],
        "warnings": [],
        "model": {"name": "callcenter-en-tiny", "digest": "0123456789abcdef"},
        "source": {
            "topic": "oasr.audio.chunks",
            "partition": 3,
            "first_offset": 8_811,
            "last_offset": 8_842,
        },
        "latency": {"final_ms": 312},
    }


def test_a_final_has_the_headers_of_a_cloud_event_and_its_session_as_key():
    record = final()

    assert (record.kind, record.key) == (Kind.FINAL, b"c-9")
    assert header_texts(record) == {
        "ce_specversion": "1.0",
        "ce_id": "c-9:3-8800:0:182400:final",
        "ce_type": "oasr.transcript.final.v1",
        "ce_source": "/oasr-worker/oasr-worker",
        "ce_time": "2026-07-25T17:20:00.007Z",
        "ce_subject": "c-9:3-8800:0:182400",
        "content-type": "application/json",
        "traceparent": TRACEPARENT,
    }


def test_a_partial_has_its_revision_in_its_id_and_no_reason_to_end():
    untraced = dataclasses.replace(SEGMENT, traceparent=None)
    record = transcript(IDENTITY, untraced, Hypothesis((Alternative("change"),), 5_120), {}, NOW_MS)

    assert record.kind is Kind.PARTIAL
    assert header_texts(record)["ce_id"] == "c-9:3-8800:0:182400:5120"
    assert header_texts(record)["ce_type"] == "oasr.transcript.partial.v1"
    assert "traceparent" not in header_texts(record)
    assert (body(record)["is_final"], body(record)["speech_final"]) == (False, False)
    assert body(record)["end_reason"] is None


@pytest.mark.parametrize(
    ("reason", "speech_final"),
    [
        *(("silence", True), ("flush", True), ("end", True), ("max_length", False)),
        *(("idle", False), ("ttl", False), ("format_change", False), ("shed", False)),
        *(("error", False), ("window", False)),
    ],
)
def test_the_speaker_has_stopped_after_silence_flush_and_end_only(reason, speech_final):
    assert body(final(reason=reason))["speech_final"] is speech_final


def test_what_is_known_of_each_reading_is_there_and_nothing_else():
    readings = (
        Alternative("a b", 0.75, (Word("a", 182_404, 182_480, 0.5), Word("b", 190_000, 202_880))),
        Alternative("a"),
    )
    record = transcript(IDENTITY, SEGMENT, Hypothesis(readings, 1, "end"), {}, NOW_MS)

    validator("transcript").validate(body(record))
    assert body(record)["alternatives"] == [
        {
            "transcript": "a b",
            "confidence": 0.75,
            "words": [
                {"word": "a", "start": 23.301, "end": 23.31, "confidence": 0.5},
                {"word": "b", "start": 24.25, "end": 25.86},
            ],
        },
        {"transcript": "a"},
    ]


def test_gaps_lie_on_the_clock_of_the_session():
    gappy = dataclasses.replace(SEGMENT, gaps=(Gap(184_000, 185_600),), warnings=("odd_bytes",))

    assert body(final(gappy))["gaps"] == [
        {
            "start": 23.5,
            "end": 23.7,
            "start_sample": 184_000,
            "end_sample": 185_600,
            "reason": "missing",
        }
    ]
    assert body(final(gappy))["warnings"] == ["odd_bytes"]


def test_ids_differ_by_session_origin_channel_and_start_and_by_nothing_else():
    assert segment_id("a", "0-1", 1, 2) == "a:0-1:1:2"
    moved = dataclasses.replace(SEGMENT, segment_index=9, end_sample=999_999, role=None)
    assert moved.segment_id == SEGMENT.segment_id
    for change in ({"session_id": "b"}, {"origin": "3-9"}, {"channel": 1}, {"start_sample": 0}):
        assert dataclasses.replace(SEGMENT, **change).segment_id != SEGMENT.segment_id


@settings(deadline=None, max_examples=200)
@given(
    sample=st.integers(0, 2**40),
    rate=st.sampled_from([8_000, 11_025, 16_000, 44_100, 48_000]),
    position_ms=st.integers(0, 10**9),
)
def test_times_are_seconds_rounded_to_milliseconds(sample, rate, position_ms):
    exact = Fraction(position_ms, 1000) + Fraction(sample, rate)

    shown = seconds(sample, rate, position_ms)

    assert abs(Fraction(shown) - exact) <= Fraction(1, 2000) + Fraction(1, 10**6)
    assert len(json.dumps(shown).partition(".")[2]) <= 3


def test_a_partial_has_the_stability_that_is_known():
    hypothesis = Hypothesis((Alternative("a"),), 1, stability=0.75)
    record = transcript(IDENTITY, SEGMENT, hypothesis, {}, NOW_MS)

    validator("transcript").validate(body(record))
    assert body(record)["stability"] == 0.75
    assert "stability" not in body(final())


def test_text_of_any_script_comes_through():
    assert body(final(text="naïve 日本 🎧"))["alternatives"][0]["transcript"] == "naïve 日本 🎧"


@pytest.mark.parametrize("reason", [None, "silence", "max_length", "window"])
def test_records_fulfil_their_schema(reason):
    gappy = dataclasses.replace(SEGMENT, role=None, gaps=(Gap(184_000, 185_600),))
    record = transcript(
        IDENTITY, gappy, Hypothesis((Alternative("x", 0.5),), 3, reason), {"queue": 4}, NOW_MS
    )

    validator("transcript").validate(body(record))


@pytest.mark.parametrize(
    "change",
    [
        {"end_reason": None},
        {"end_reason": "hangup"},
        {"start": "23.3"},
        {"alternatives": []},
        {"surplus": 1},
        {"segment_id": "c-9"},
        {"latency": {"final": 1}},
    ],
)
def test_the_schema_refuses_what_is_no_final(change):
    with pytest.raises(jsonschema.ValidationError):
        validator("transcript").validate(body(final()) | change)


def test_a_timestamp_is_rfc_3339_in_utc():
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"
    parsed = datetime.fromisoformat(timestamp(NOW_MS))
    assert round(parsed.timestamp() * 1000) == NOW_MS
