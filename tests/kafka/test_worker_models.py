"""Calls and recordings in one worker, each by a model of its own; recordings by Whisper alone."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oasr.decoding.wer import Wer
from tests.support.bundled_calls import assert_all_was_heard, bundled_calls
from tests.support.kafka import Message, Topics, WorkerProcess, consume_all, produce, wait_until
from tests.support.whisper import MODEL_DIR, SPEECH
from tests.support.worker_calls import (
    all_ended,
    body,
    call_messages,
    ended,
    excerpt,
    side_by_side,
)
from worker.file_jobs import inline_job
from worker.messages import RawMessage

SECOND_PASS = ("options", b'{"second_pass": true}')
WHISPER = {"dir": str(MODEL_DIR), "dtype": "int8"}


def job(topics: Topics, name: str, key: str = "", options: str = "{}") -> Message:
    found = inline_job(SPEECH / name)
    headers = (*found.headers, ("options", options.encode()))
    return Message(topics.files, (key or name).encode(), found.value, headers)


def model_children(worker: WorkerProcess) -> list[int]:
    """The processes of the worker that stand back, as those of models do."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(rest[1]) == worker.process.pid and int(rest[16]) == 19:
            found.append(pid)
    return found


def files_completed(count: int) -> Callable[[list[RawMessage]], bool]:
    return lambda records: sum(body(raw)["schema"] == "oasr.file.v1" for raw in records) >= count


def finals_of(records: list[RawMessage], key: str) -> list[dict[str, Any]]:
    return [body(raw) for raw in records if raw.key == key.encode()]


def assert_right(name: str, finals: list[dict[str, Any]]) -> None:
    """What is said on every channel is the known text of a recording, once."""
    (known,) = [
        entry["text"]
        for entry in json.loads((SPEECH / "reference.json").read_text())
        if entry["file"] == name
    ]
    assert finals
    for channel in range(finals[0]["channels"]):
        ordered = sorted(
            (final["start_sample"], final["alternatives"][0]["transcript"])
            for final in finals
            if final["channel"] == channel
        )
        text = " ".join(said for _, said in ordered)
        heard = Wer()
        heard.add(known, re.sub(r"[^a-z' ]", "", text.lower().replace("-", " ")))
        assert heard.errors <= 2, text


@pytest.mark.timeout(480)
def test_calls_and_recordings_have_models_of_their_own_in_one_worker(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    calls = bundled_calls(topics.chunks)[:2]
    settings = {"OASR_MODELS": json.dumps({"files": WHISPER})}
    produce(broker, [job(topics, "jfk.flac"), *side_by_side(calls)])
    with worker_process(topics, "both", settings) as worker:
        (child,) = model_children(worker)
        # What it was reading is read again by another, and nothing is said twice or left out.
        wait_until(
            "it has something to read",
            lambda: worker.metric("oasr_worker_model_open_requests") > 0,
            60,
        )
        os.kill(child, signal.SIGKILL)
        produce(
            broker,
            [
                job(topics, "librispeech-1995-1837-0001.wav"),
                job(topics, "jfk.flac", "by the other model", '{"model": "live"}'),
                job(topics, "jfk.flac", "nobody's", '{"model": "french"}'),
            ],
        )
        consume_all(broker, topics.events, all_ended(len(calls)), timeout_s=180)
        consume_all(broker, topics.events, files_completed(3), timeout_s=180)
        consume_all(broker, topics.dead_letters, lambda found: bool(found), timeout_s=60)
        assert worker.metric("oasr_worker_model_info") == 2
        assert worker.metric("oasr_worker_child_deaths_total") == 1
        assert worker.terminate() == 0

    transcripts = consume_all(broker, topics.transcripts)
    events = consume_all(broker, topics.events)
    keys = {message.key for call in calls for message in call}
    assert_all_was_heard([raw for raw in transcripts if raw.key in keys], events)
    for raw in transcripts:
        is_call = raw.key in keys or raw.key == b"by the other model"
        assert (body(raw)["model"]["name"] == "callcenter-en-tiny") is is_call  # type: ignore[index]
    for name in ("jfk.flac", "librispeech-1995-1837-0001.wav"):
        finals = finals_of(transcripts, name)
        assert_right(name, finals)
        assert len({final["segment_id"] for final in finals}) == len(finals)
        (completed,) = finals_of(events, name)
        assert completed["model"] == finals[0]["model"]
        assert completed["finals"] == len(finals)
    (refused,) = consume_all(broker, topics.dead_letters)
    assert dict(refused.headers)["error.code"] == b"option_unsupported"


@pytest.mark.timeout(480)
def test_whisper_alone_reads_recordings_where_no_calls_are_read(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    settings = {
        "OASR_LANES": "files",
        "OASR_MODEL__DIR": str(MODEL_DIR),
        "OASR_MODEL__DTYPE": "int8",
    }
    produce(broker, [job(topics, "jfk.flac")])
    with worker_process(topics, "alone", settings) as worker:
        assert model_children(worker) == []
        events = consume_all(broker, topics.events, files_completed(1), timeout_s=180)
        assert worker.terminate() == 0

    finals = finals_of(consume_all(broker, topics.transcripts), "jfk.flac")
    assert_right("jfk.flac", finals)
    assert finals_of(events, "jfk.flac")[0]["model"] == finals[0]["model"]


@pytest.mark.timeout(480)
def test_a_call_is_heard_again_by_the_file_model_and_an_heir_says_that_it_cannot_be(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    complete, heirless = "whole", "cut"
    whole, cut = (
        [
            replace(message, headers=(*message.headers, SECOND_PASS))
            for message in call_messages(topics, name, excerpt(0, 0.0, seconds))
        ]
        for name, seconds in ((complete, 12.0), (heirless, 26.0))
    )
    settings = {
        "OASR_MODELS": json.dumps({"files": WHISPER}),
        "OASR_DELIVERY__MODE": "exactly-once",
        "OASR_KAFKA__SESSION_TIMEOUT_MS": "2000",
    }

    def read(topic: str, until: Callable[[list[RawMessage]], bool]) -> list[RawMessage]:
        return consume_all(broker, topic, until, timeout_s=180)

    produce(broker, whole)
    with worker_process(topics, "passes", settings, name="first") as worker:
        first_end = ended(read(topics.events, all_ended(1)))[complete]
        told = sum(first_end[name] for name in ("finals", "second_finals"))  # type: ignore[misc]
        produce(broker, cut[: len(cut) * 3 // 4])
        read(topics.transcripts, lambda found: len(found) >= told + 2)
        assert worker.terminate() == 0
    produce(broker, cut[len(cut) * 3 // 4 :])
    with worker_process(topics, "passes", settings, name="heir") as worker:
        ends = ended(read(topics.events, all_ended(2)))
        assert worker.terminate() == 0

    told += ends[heirless]["finals"]  # type: ignore[operator]
    finals = [body(raw) for raw in read(topics.transcripts, lambda found: len(found) >= told)]
    assert len(finals) == told
    assert ends[heirless]["warnings"] == ["second_pass_impossible"]
    assert ends[complete]["warnings"] == []
    again = {str(f["segment_id"]): f for f in finals if f.get("pass") == "whisper"}
    first = {
        str(f["segment_id"]): f for f in finals if "pass" not in f and f["session_id"] == complete
    }
    assert len(again) == ends[complete]["second_finals"]
    assert again.keys() >= first.keys()
    same = ("session_id", "start_sample", "end_sample", "channel", "role", "end_reason")
    for name, final in first.items():
        assert {key: again[name][key] for key in same} == {key: final[key] for key in same}
        assert again[name]["model"] != final["model"]
    heard = [f["alternatives"][0]["transcript"] for f in again.values()]  # type: ignore[index]
    assert sum(map(bool, heard)) > len(first) // 2
