"""Every record of every test is checked; these show that the check is on, and can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.messages import audio_message
from tests.support.record_checks import WrongRecord, check_record, compiled
from tests.support.schemas import SCHEMAS, body
from worker import dead_letters, events
from worker.cloudevents import Identity, ModelName
from worker.dead_letters import Refusal
from worker.errors import ErrorCode
from worker.messages import Kind, OutRecord

IDENTITY = Identity("group", ModelName("m", "d"))
SESSION = events.Session("call-1", "0-7", sample_rate=8000, channels=2)
CAUSE = events.Cause("chunks", 0, 7)


def started() -> OutRecord:
    return events.started(IDENTITY, SESSION, CAUSE, now_ms=0)


def test_a_record_of_the_worker_that_is_not_by_its_schema_fails_the_test_that_made_it() -> None:
    with pytest.raises(WrongRecord, match="ce_subject"):
        events.started(IDENTITY, replace(SESSION, session_id=""), CAUSE, now_ms=0)
    with pytest.raises(WrongRecord, match="sample_rate"):
        events.started(IDENTITY, replace(SESSION, sample_rate=0), CAUSE, now_ms=0)


def test_what_a_test_lays_out_itself_need_not_be_a_record() -> None:
    assert OutRecord(Kind.FINAL, b"k", b"no JSON", ()).value == b"no JSON"


def test_records_that_come_from_a_topic_are_checked_by_their_headers() -> None:
    record = started()

    assert check_record(record.value, record.headers) == "session-event"
    with pytest.raises(WrongRecord, match="resumed"):
        check_record(record.value.replace(b'"started"', b'"begun"'), record.headers)
    timeless = tuple(pair for pair in record.headers if pair[0] != "ce_time")
    with pytest.raises(WrongRecord, match="ce_time"):
        check_record(record.value, timeless)
    with pytest.raises(WrongRecord, match="twice"):
        check_record(record.value, (*record.headers, record.headers[0]))
    assert check_record(b"audio", (("encoding", b"mulaw"),)) is None


def test_dead_letters_are_checked_with_any_headers_of_their_messages() -> None:
    refusal = Refusal(ErrorCode.ENCODING_UNSUPPORTED, "no", "codec")
    letter = dead_letters.build(audio_message(odd=b"\xff", empty=None), refusal, now_ms=0)

    assert check_record(letter.value, letter.headers) == "dead-letter.headers"
    with pytest.raises(WrongRecord, match="attempts"):
        check_record(letter.value, (*letter.headers, ("attempts", b"many")))
    with pytest.raises(WrongRecord, match="reference"):
        check_record(b"{}", (*letter.headers, ("value.reference", b"true")))


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_the_fast_validators_refuse_what_is_nothing(path) -> None:
    with pytest.raises(Exception, match="data"):
        compiled(path.name.removesuffix(".schema.json"))(7)


def test_the_checked_record_is_the_record() -> None:
    assert body(started())["session_id"] == "call-1"
