"""What a producer asks of the decoding reaches the engine, and what that finds its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.support.kafka import Message, Topics, WorkerProcess, consume_all, produce
from tests.support.schemas import validator
from tests.support.worker_calls import (
    RECORDINGS,
    all_ended,
    body,
    call_messages,
    excerpt,
    readings,
    side_by_side,
)
from worker.messages import RawMessage

# The customer of this call says "june sixteenth", which the model alone takes for something else.
OPTIONS = {
    "words": True,
    "max_alternatives": 3,
    "hotwords": [{"phrase": "june sixteenth", "boost": 5}, "account number"],
}


def asking(messages: list[Message], options: dict[str, Any]) -> list[Message]:
    """The same messages with these options."""
    header = ("options", orjson.dumps(options))
    return [replace(m, headers=(*m.headers, header)) for m in messages]


def of_session(records: list[RawMessage], session_id: str) -> list[dict[str, Any]]:
    """Its records by channel and place."""
    found: list[dict[str, Any]] = [body(raw) for raw in records if raw.key == session_id.encode()]
    return sorted(found, key=lambda record: (record["channel"], record["start_sample"]))


def assert_words_are_the_text(record: dict[str, Any]) -> None:
    """Words join to their transcript, rise, lie inside the segment and have confidences."""
    for alternative in record["alternatives"]:
        words = alternative.get("words", [])
        assert " ".join(word["word"] for word in words) == alternative["transcript"]
        times = [word[edge] for word in words for edge in ("start", "end")]
        assert times == sorted(times)
        assert all(record["start"] <= time <= record["end"] for time in times)
        assert all(0 < word["confidence"] <= 1 for word in words)


@pytest.mark.timeout(240)
def test_calls_get_the_words_alternatives_and_hotwords_that_they_ask_for(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    audio = excerpt(0, 0.0, 26.0)
    calls = [
        asking(call_messages(topics, "asking", audio), OPTIONS),
        call_messages(topics, "plain", audio),
        asking(call_messages(topics, "lenient", audio), {"hotwords": ["42"], "lenient": True}),
        asking(call_messages(topics, "steady", audio), {"min_stability": 1}),
        asking(call_messages(topics, "refused", audio)[:2], {"hotwords": ["42"]}),
        asking(call_messages(topics, "torn", audio)[:2], {**OPTIONS, "search": "greedy"}),
    ]
    produce(broker, side_by_side(calls))

    with worker_process(topics, "decoding"):
        consume_all(broker, topics.events, all_ended(4), timeout_s=90)
        letters = consume_all(broker, topics.dead_letters, lambda found: len(found) >= 4)

    records = consume_all(broker, topics.transcripts)
    partials = consume_all(broker, topics.partials)
    for raw in (*records, *partials):
        validator("transcript").validate(body(raw))
    asked, plain, lenient = (of_session(records, name) for name in ("asking", "plain", "lenient"))
    for record in (*asked, *of_session(partials, "asking")):
        assert_words_are_the_text(record)
    assert all(1 <= len(record["alternatives"]) <= 3 for record in asked)
    assert any(len(record["alternatives"]) == 3 for record in asked)
    assert all(len(set(readings(raw))) == len(readings(raw)) for raw in records)
    assert "june sixteenth" in [record["alternatives"][0]["transcript"] for record in asked]

    (only,) = zip(*(record["alternatives"] for record in plain), strict=True)
    assert "june sixteenth" not in [alternative["transcript"] for alternative in only]
    assert all(set(alternative) == {"transcript", "confidence"} for alternative in only)
    assert [(r["start_sample"], r["end_sample"]) for r in plain] == [
        (r["start_sample"], r["end_sample"]) for r in asked
    ]

    assert all(0 <= body(raw)["stability"] <= 1 for raw in partials)
    assert all("stability" not in body(raw) for raw in records)
    finals = {
        r["segment_id"]: r["alternatives"][0]["transcript"].split() for r in map(body, records)
    }
    steady = of_session(partials, "steady")
    assert steady
    for partial in steady:
        words = partial["alternatives"][0]["transcript"].split()
        assert words == finals[partial["segment_id"]][: len(words)]

    assert all(record["warnings"] == ["option_unsupported:hotwords"] for record in lenient)
    assert [r["alternatives"][0]["transcript"] for r in lenient] == [
        r["alternatives"][0]["transcript"] for r in plain
    ]
    reasons = [(raw.key, dict(raw.headers)["error.code"]) for raw in letters]
    assert sorted(reasons) == [
        (b"refused", b"option_unsupported"),
        (b"refused", b"option_unsupported"),
        (b"torn", b"invalid_options"),
        (b"torn", b"invalid_options"),
    ]


@pytest.mark.timeout(240)
def test_a_file_gets_what_its_job_asks_for(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    recording = RECORDINGS[0].read_bytes()
    headers = {"content-type": "audio/wav", "options": orjson.dumps(OPTIONS).decode()}
    produce(broker, [Message(topics.files, b"voicemail", recording, headers)])

    with worker_process(topics, "decoding", {"OASR_DECODING__CONFIDENCES": "true"}):
        consume_all(broker, topics.events, lambda found: len(found) >= 1, timeout_s=90)

    finals = of_session(consume_all(broker, topics.transcripts), "voicemail")
    assert finals
    for record in finals:
        validator("transcript").validate(record)
        assert_words_are_the_text(record)
    assert any(len(record["alternatives"]) == 3 for record in finals)
