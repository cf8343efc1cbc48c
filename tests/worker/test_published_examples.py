"""The published examples are what a worker takes, and what it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from tests.support.published_examples import CHUNKS, NOW_MS, WorkerDesk, example, raw, shown
from tests.support.record_checks import check_record
from tests.support.schemas import validator
from tests.support.worker_calls import CALLS
from worker import events, loss
from worker.cloudevents import Identity, ModelName
from worker.codec import ChunkDefaults, CodecError, parse_chunk, parse_file

# The amounts of a file of 30 s that nobody has to decode for this.
COMPLETED = events.CompletedFile(
    file_id="recording-42",
    origin="3-1207",
    sample_rate=8000,
    duration_samples=240_000,
    totals=(
        events.ChannelTotals(0, "customer", 2, 240_000, 91_200, 148_800),
        events.ChannelTotals(1, "agent", 3, 240_000, 104_640, 135_360),
    ),
    warnings=("truncated",),
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)


@pytest.fixture(scope="module")
def engine() -> ASREngine:
    return ASREngine(EngineConfig())


def settled(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what depends on the machine: latencies and the last digit of confidences."""
    copy: dict[str, Any] = json.loads(json.dumps(record))
    body = copy.get("value", {})
    body.pop("latency", None)
    for reading in body.get("alternatives", ()):
        for part in (reading, *reading.get("words", ())):
            if "confidence" in part:
                part["confidence"] = pytest.approx(part["confidence"], abs=0.01)
    return copy


def test_a_worker_answers_the_example_call_as_the_example_says(engine: ASREngine) -> None:
    call = example("call")
    desk = WorkerDesk([raw(said, offset) for offset, said in enumerate(call["messages"])], engine)

    desk.run()

    told = [shown(record) for record in desk.outbox.sent]
    assert [settled(record) for record in call["records"]] == [
        {**record, "value": {k: v for k, v in record["value"].items() if k != "latency"}}
        if "value" in record
        else record
        for record in told
    ]
    spoken = json.loads(CALLS[0].with_suffix(".json").read_text(encoding="utf-8"))["segments"][0]
    (final,) = [r["value"] for r in call["records"] if r["topic"] == "oasr.transcripts"]
    assert final["alternatives"][0]["transcript"] == spoken["text"]


def test_the_messages_of_the_example_call_are_by_their_schemas() -> None:
    refused = []
    for offset, said in enumerate(example("call")["messages"]):
        assert said["topic"] == CHUNKS
        if said["headers"].get("encoding") != "speex":
            validator("audio-chunk.headers").validate(said["headers"])
            validator("options").validate(json.loads(said["headers"].get("options", "{}")))
        try:
            assert parse_chunk(raw(said, offset), ChunkDefaults()) is not None
        except CodecError as error:
            refused.append(error.code.value)
    assert refused == ["encoding_unsupported"]


def test_the_file_jobs_of_the_example_are_taken() -> None:
    by_reference, inline, nothing = (
        raw(s, n) for n, s in enumerate(example("recording")["messages"])
    )

    job = parse_file(by_reference)
    assert job is not None
    assert (job.uri, job.roles) == ("file:///recordings/42.wav", ("customer", "agent"))
    validator("file-job").validate(json.loads(by_reference.value or b""))
    job = parse_file(inline)
    assert job is not None
    assert (job.audio, job.options.language) == (inline.value, "en")
    assert parse_file(nothing) is None


def test_the_events_of_the_example_recording_are_what_the_worker_makes() -> None:
    identity = Identity("oasr-worker.files", ModelName("callcenter-en-tiny", "fe4db88ba4ebf95c"))
    cause = events.Cause("oasr.audio.files", 3, 1207)

    completed = events.file_completed(identity, COMPLETED, cause, NOW_MS)
    lost = loss.event(identity, loss.Loss("oasr.audio.files", 3, 1180, 1206), NOW_MS)

    assert example("recording")["records"] == [shown(completed), shown(lost)]


@pytest.mark.parametrize("name", ["call", "recording"])
def test_every_record_of_an_example_is_by_its_schema(name: str) -> None:
    for offset, record in enumerate(example(name)["records"]):
        as_message = raw(record, offset)
        assert check_record(as_message.value, as_message.headers) is not None
