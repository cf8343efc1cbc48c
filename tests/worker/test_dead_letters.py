"""A dead letter is the refused message with the reason, or a reference when that is too large."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messages import audio_message, message
from tests.support.schemas import header_texts, validator
from worker.dead_letters import DEFAULT_MAX_BYTES, Refusal, build, of_segment
from worker.errors import ErrorCode
from worker.messages import Kind, OutRecord, RawMessage
from worker.records import Segment, Source

REFUSAL = Refusal(ErrorCode.INVALID_HEADER, "sample_rate is not an integer", "codec", attempts=2)
NOW_MS = 1_785_000_000_000


def size(record: OutRecord) -> int:
    headers = sum(10 + len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value) + headers


def test_a_dead_letter_keeps_the_message_and_says_why():
    raw = audio_message(b"\x01\x02", sample_rate="fast")

    letter = build(raw, REFUSAL, NOW_MS)

    assert (letter.kind, letter.key, letter.value) == (Kind.DEAD_LETTER, b"call-1", b"\x01\x02")
    assert letter.headers[: len(raw.headers)] == raw.headers
    assert dict(letter.headers[len(raw.headers) :]) == {
        "error.id": b"calls:2:7:-:invalid_header",
        "error.code": b"invalid_header",
        "error.message": b"sample_rate is not an integer",
        "error.stage": b"codec",
        "error.time": b"2026-07-25T17:20:00.000Z",
        "source.topic": b"calls",
        "source.partition": b"2",
        "source.offset": b"7",
        "source.timestamp": b"1700000000123",
        "attempts": b"2",
    }


def test_its_headers_fulfil_the_schema():
    for raw in (audio_message(), message(None, key=None), message(b"\0" * 2_000_000)):
        validator("dead-letter.headers").validate(header_texts(build(raw, REFUSAL, NOW_MS)))


def test_headers_with_null_values_and_repeated_headers_are_kept():
    raw = message(b"x", extra=(("a", None), ("a", b"1"), ("b", b"\xff")))

    letter = build(raw, REFUSAL, NOW_MS)

    assert letter.headers[:3] == (("a", None), ("a", b"1"), ("b", b"\xff"))


def test_a_null_value_is_told_from_an_empty_one():
    null = build(message(None, event="flush"), REFUSAL, NOW_MS)
    empty = build(message(b""), REFUSAL, NOW_MS)

    assert null.value == empty.value == b""
    assert ("value.null", b"true") in null.headers
    assert "value.null" not in dict(empty.headers)


def test_a_value_that_does_not_fit_is_replaced_by_a_reference():
    value = bytes(range(256)) * 4_096 * 10
    raw = audio_message(value)

    letter = build(raw, REFUSAL, NOW_MS)

    assert header_texts(letter)["value.reference"] == "true"
    assert json.loads(letter.value) == {
        "schema": "oasr.value-reference.v1",
        "topic": "calls",
        "partition": 2,
        "offset": 7,
        "size_bytes": len(value),
        "sha256": hashlib.sha256(value).hexdigest(),
    }
    assert letter.headers[: len(raw.headers)] == raw.headers


def test_a_value_that_just_fits_is_kept():
    fitting = audio_message(b"\x01" * (DEFAULT_MAX_BYTES - 16 * 1024))

    letter = build(fitting, REFUSAL, NOW_MS)

    assert letter.value == fitting.value
    assert size(letter) <= DEFAULT_MAX_BYTES


@pytest.mark.parametrize("where", ["key", "one header", "many headers", "empty headers"])
def test_huge_keys_and_headers_are_cut_and_the_value_is_kept(where):
    many = tuple((f"h{number}", b"x" * 100) for number in range(20_000))
    headers = {
        "one header": (("big", b"x" * 2_000_000), ("small", b"y")),
        "many headers": many,
        "empty headers": (("", None),) * 200_000,
    }
    key = b"k" * 1_000_000 if where == "key" else b"k"
    raw = RawMessage("calls", 0, 1, 0, key, b"value", headers.get(where, ()))

    letter = build(raw, REFUSAL, NOW_MS)

    assert letter.value == b"value"
    assert size(letter) <= DEFAULT_MAX_BYTES
    names = dict(letter.headers)
    assert ("key.truncated" in names) is (where == "key")
    assert ("headers.dropped" in names) is (where != "key")


def test_the_message_has_no_control_characters_and_at_most_a_kibibyte():
    refusal = Refusal(ErrorCode.FETCH_FAILED, "a\x1b[31m\r\nb\u2028" + "é" * 2_000, "fetch")

    text = dict(build(message(), refusal, NOW_MS).headers)["error.message"]

    assert text is not None
    assert len(text) <= 1024
    assert text.decode().startswith("a [31m  b é")


def test_a_dead_letter_that_is_refused_again_tells_the_last_refusal_alone():
    first = build(audio_message(), REFUSAL, NOW_MS)
    again = RawMessage("calls", 1, 99, 5, first.key, first.value, first.headers)

    second = build(again, Refusal(ErrorCode.ODD_BYTES, "odd", "sessions"), NOW_MS)

    texts = header_texts(second)
    assert (texts["error.code"], texts["source.offset"]) == ("odd_bytes", "99")
    assert texts["encoding"] == "mulaw"


def test_attempts_before_a_replay_are_counted_and_their_header_is_not_kept():
    raw = audio_message(**{"replay.attempts": "4"})

    letter = build(raw, REFUSAL, NOW_MS)

    texts = header_texts(letter)
    assert texts["attempts"] == "6"
    assert "replay.attempts" not in texts


@pytest.mark.parametrize("count", ["", "-1", "1e3", "9" * 7, "٣", None])
def test_a_count_that_no_replay_has_written_does_not_count(count):
    letter = build(audio_message(**{"replay.attempts": count}), REFUSAL, NOW_MS)

    assert header_texts(letter)["attempts"] == "2"


def test_headers_that_cannot_be_read_are_told():
    raw = RawMessage("calls", 2, 7, 5, b"k", b"value", (), headers_readable=False)

    letter = build(raw, REFUSAL, NOW_MS)

    assert header_texts(letter)["headers.unreadable"] == "true"
    validator("dead-letter.headers").validate(header_texts(letter))


@settings(deadline=None, max_examples=100)
@given(
    key=st.one_of(st.none(), st.binary(max_size=300)),
    value_bytes=st.integers(0, 4_000),
    headers=st.lists(
        st.tuples(st.text(max_size=10), st.one_of(st.none(), st.binary(max_size=2_000))), max_size=9
    ),
)
def test_no_dead_letter_exceeds_the_limit(key, value_bytes, headers):
    raw = RawMessage("calls", 0, 1, 0, key, b"v" * value_bytes, tuple(headers))

    letter = build(raw, REFUSAL, NOW_MS, max_bytes=100_000)

    assert size(letter) <= 100_000
    assert letter.value == raw.value


def test_a_segments_dead_letter_has_the_segments_id_and_refers_to_its_messages():
    segment = Segment("call-1", "2-7", 1, 2, None, 4, 800, 1600, 8000, Source("calls", 2, 9, 11))
    refusal = Refusal(ErrorCode.CRASHED_WORKER, "a process ended", "engine", attempts=2)

    letter = of_segment(segment, refusal, 1_700_000_000_123, NOW_MS)

    validator("dead-letter.headers").validate(header_texts(letter))
    texts = header_texts(letter)
    assert (letter.kind, letter.key) == (Kind.DEAD_LETTER, b"call-1")
    assert texts["error.id"] == "call-1:2-7:1:800:crashed_worker"
    assert (texts["source.offset"], texts["source.timestamp"]) == ("9", "1700000000123")
    assert texts["value.reference"] == "true"
    assert json.loads(letter.value) == {
        "schema": "oasr.segment-reference.v1",
        "topic": "calls",
        "partition": 2,
        "first_offset": 9,
        "last_offset": 11,
        "channel": 1,
        "start_sample": 800,
        "end_sample": 1600,
        "sample_rate": 8000,
    }
