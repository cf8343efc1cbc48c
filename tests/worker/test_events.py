"""Event records tell what happened, with totals that add up, under ids that repeat."""

from __future__ import annotations

import dataclasses

import jsonschema
import pytest

from tests.support.messages import TRACEPARENT
from tests.support.schemas import body, header_texts, validator
from worker import events
from worker.cloudevents import Identity, ModelName
from worker.events import (
    Cause,
    ChannelTotals,
    CompletedFile,
    MissingAudio,
    Outcome,
    Session,
    SessionEvent,
)
from worker.messages import Kind
from worker.records import Gap

IDENTITY = Identity("calls", ModelName("tiny", "00ff"))
SESSION = Session("c-9", "2-40", 8_000, 2, ("customer", "agent"), 250, None, TRACEPARENT)
CAUSE = Cause("oasr.audio.chunks", 2, 77)
TOTALS = (
    ChannelTotals(0, "customer", 3, 24_000, 16_000, 7_200, (("duplicate", 800), ("abort", 0))),
    ChannelTotals(1, "agent", 1, 24_000, 8_000, 16_000),
)
NOW_MS = 1_785_000_000_000


def session_records():
    missing = MissingAudio(Gap(1_600, 4_000), 2_400, (5, 7))
    of_channel = dataclasses.replace(CAUSE, channel=1)
    return {
        SessionEvent.STARTED: events.started(IDENTITY, SESSION, CAUSE, NOW_MS),
        SessionEvent.RESUMED: events.resumed(IDENTITY, SESSION, CAUSE, "format_change", NOW_MS),
        SessionEvent.GAP: events.gap(IDENTITY, SESSION, of_channel, missing, NOW_MS),
        SessionEvent.WARNING: events.warning(IDENTITY, SESSION, CAUSE, "odd_bytes", NOW_MS),
        SessionEvent.ENDED: events.ended(IDENTITY, SESSION, CAUSE, Outcome("end", TOTALS), NOW_MS),
    }


def test_there_is_a_record_of_every_session_event():
    assert list(session_records()) == list(SessionEvent)


@pytest.mark.parametrize("event", SessionEvent)
def test_session_events_fulfil_their_schema(event):
    record = session_records()[event]

    validator("session-event").validate(body(record))
    assert (record.kind, record.key) == (Kind.EVENT, b"c-9")
    assert body(record)["event"] == event
    assert header_texts(record)["ce_type"] == f"oasr.session.{event}.v1"
    assert header_texts(record)["ce_subject"] == "c-9"
    assert header_texts(record)["ce_source"] == "/oasr-worker/calls"
    assert header_texts(record)["traceparent"] == TRACEPARENT


def test_an_event_is_named_after_the_message_that_it_is_about():
    ids = {event: header_texts(record)["ce_id"] for event, record in session_records().items()}

    assert ids == {
        SessionEvent.STARTED: "oasr.audio.chunks:2:77:-:started",
        SessionEvent.RESUMED: "oasr.audio.chunks:2:77:-:resumed",
        SessionEvent.GAP: "oasr.audio.chunks:2:77:1:gap",
        SessionEvent.WARNING: "oasr.audio.chunks:2:77:-:odd_bytes",
        SessionEvent.ENDED: "oasr.audio.chunks:2:77:-:ended",
    }


def test_the_end_of_a_session_has_the_totals_of_every_channel():
    ended = body(session_records()[SessionEvent.ENDED])

    assert ended["reason"] == "end"
    assert ended["finals"] == 4
    assert ended["totals"][0] == {
        "channel": 0,
        "role": "customer",
        "finals": 3,
        "received": {"samples": 24_000, "seconds": 3.0},
        "decoded": {"samples": 16_000, "seconds": 2.0},
        "silence": {"samples": 7_200, "seconds": 0.9},
        "dropped": {"duplicate": {"samples": 800, "seconds": 0.1}},
    }
    for channel in ended["totals"]:
        dropped = sum(amount["samples"] for amount in channel["dropped"].values())
        parts = channel["decoded"]["samples"] + channel["silence"]["samples"] + dropped
        assert channel["received"]["samples"] == parts


def test_a_session_that_goes_on_says_from_which_sample_it_counts():
    resumed = dataclasses.replace(SESSION, from_sample=160_000)

    record = events.resumed(IDENTITY, resumed, CAUSE, "new_origin", NOW_MS)

    assert body(record)["from_sample"] == 160_000
    assert body(record)["reason"] == "new_origin"


def test_a_gap_lies_on_the_clock_of_the_session():
    gap = body(session_records()[SessionEvent.GAP])

    assert (gap["first_sequence"], gap["last_sequence"], gap["channel"]) == (5, 7, 1)
    assert (gap["gap"]["start"], gap["gap"]["end"]) == (0.45, 0.75)


def test_a_gap_without_a_sample_rate_is_a_mistake():
    unknown = dataclasses.replace(SESSION, sample_rate=None)
    with pytest.raises(ValueError, match="sample rate"):
        events.gap(IDENTITY, unknown, CAUSE, MissingAudio(Gap(0, 1)), NOW_MS)


def test_a_session_that_never_had_audio_ends_too():
    silent = Session("c-9", "2-40")

    record = events.ended(IDENTITY, silent, CAUSE, Outcome("ttl", ()), NOW_MS)

    validator("session-event").validate(body(record))
    assert body(record)["finals"] == 0
    assert "traceparent" not in header_texts(record)


def completed():
    file = CompletedFile("f-1", "0-12", 8_000, 24_000, TOTALS, ("truncated",), TRACEPARENT)
    return events.file_completed(IDENTITY, file, Cause("oasr.audio.files", 0, 12), NOW_MS)


def test_a_completed_file_states_its_finals_and_fulfils_its_schema():
    record = completed()

    validator("file-completed").validate(body(record))
    assert (record.kind, record.key) == (Kind.EVENT, b"f-1")
    assert (body(record)["finals"], body(record)["duration"]) == (4, 3.0)
    assert header_texts(record)["ce_id"] == "oasr.audio.files:0:12:-:completed"
    assert header_texts(record)["ce_type"] == "oasr.file.completed.v1"


@pytest.mark.parametrize(
    ("schema", "change"),
    [
        ("session-event", {"event": "gap"}),
        ("session-event", {"event": "vanished"}),
        ("session-event", {"surplus": 1}),
        ("session-event", {"totals": [{"channel": 0}]}),
        ("file-completed", {"finals": "4"}),
        ("file-completed", {"surplus": 1}),
    ],
)
def test_the_schemas_refuse_other_records(schema, change):
    record = completed() if schema == "file-completed" else session_records()[SessionEvent.ENDED]

    with pytest.raises(jsonschema.ValidationError):
        validator(schema).validate(body(record) | change)
