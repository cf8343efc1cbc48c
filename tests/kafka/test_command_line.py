"""The commands as processes against a broker, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kafka import Message, Topics, consume_all, produce, wait_until
from tests.support.recordings import write_call
from worker.codec import ChunkDefaults, Event, parse_chunk, parse_file
from worker.messages import RawMessage

UniqueTopics = Callable[..., Topics]
SECOND = bytes(range(250)) * 64  # of a stereo call at 8 kHz


def command(broker: str, topics: Topics, *arguments: str) -> subprocess.Popen[str]:
    environment = {n: text for n, text in os.environ.items() if not n.startswith("OASR_")}
    return subprocess.Popen(
        [sys.executable, "-m", "worker", *arguments],
        env=environment | topics.environment() | {"OASR_KAFKA__BOOTSTRAP_SERVERS": broker},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def chunks(messages: list[RawMessage]) -> dict[str, list[object]]:
    calls: dict[str, list[object]] = {}
    for message in messages:
        chunk = parse_chunk(message, ChunkDefaults())
        assert chunk is not None
        calls.setdefault(chunk.session_id, []).append(chunk)
    return calls


def test_missing_topics_are_listed_created_and_then_there(broker: str) -> None:
    name = f"cli.{os.urandom(6).hex()}"
    topics = Topics(*(f"{name}.{letter}" for letter in "abcdefg"))

    status, out, _ = finished(command(broker, topics, "topics"))
    assert (status, out.count("missing")) == (1, 7)

    status, out, _ = finished(command(broker, topics, "topics", "--create"))
    assert (status, out.count("created")) == (0, 7)

    status, out, _ = finished(command(broker, topics, "topics"))
    assert (status, out.count("12 partitions")) == (0, 7)


def test_a_played_call_is_on_the_topic_byte_by_byte(
    broker: str, unique_topics: UniqueTopics, tmp_path: Path
) -> None:
    topics = unique_topics()
    write_call(tmp_path, "call", SECOND, ["agent", "customer"])

    playing = command(
        broker,
        *(topics, "produce", str(tmp_path), "--calls", "3", "--speed", "0"),
        *("--options", '{"words": true}'),
    )
    status, _, err = finished(playing)

    assert status == 0, err
    calls = chunks(consume_all(broker, topics.chunks))
    assert len(calls) == 3
    for session_id, messages in calls.items():
        *audio, end = messages
        assert session_id.startswith("call-")
        assert b"".join(chunk.audio for chunk in audio) == SECOND
        assert [chunk.sequence for chunk in messages] == list(range(11))
        assert audio[0].roles == ("agent", "customer")
        assert {chunk.options.asked.words for chunk in audio} == {True}
        assert end.event is Event.END
    assert "33 messages delivered" in err


def test_ctrl_c_ends_the_calls_that_are_on_the_line(
    broker: str, unique_topics: UniqueTopics, tmp_path: Path
) -> None:
    topics = unique_topics()
    write_call(tmp_path, "call", SECOND * 60)
    playing = command(broker, topics, "produce", str(tmp_path), "--calls", "2")
    wait_until("both calls play", lambda: len(chunks(consume_all(broker, topics.chunks))) == 2)

    playing.send_signal(signal.SIGINT)
    status, _, err = finished(playing)

    assert (status, "2 calls ended early" in err) == (130, True)
    for messages in chunks(consume_all(broker, topics.chunks)).values():
        assert messages[-1].event is Event.END
        assert messages[-1].sequence == len(messages) - 1


def test_recordings_become_file_jobs_by_value_and_by_reference(
    broker: str, unique_topics: UniqueTopics, tmp_path: Path
) -> None:
    topics = unique_topics()
    path = write_call(tmp_path, "note", SECOND)

    files = ("produce", str(path), "--files", "--options", '{"words": true}')
    assert finished(command(broker, topics, *files))[0] == 0
    by_reference = command(broker, topics, *files, "--by-reference")
    assert finished(by_reference)[0] == 0

    jobs = [parse_file(message) for message in consume_all(broker, topics.files)]
    assert sorted((job.audio, job.uri) for job in jobs if job is not None and job.audio) == [
        (path.read_bytes(), None)
    ]
    assert [job.options.asked.words for job in jobs if job is not None] == [True, True]
    assert [job.uri for job in jobs if job is not None and job.uri] == [path.resolve().as_uri()]


def test_a_topic_that_is_not_there_is_one_clear_line(broker: str, tmp_path: Path) -> None:
    topics = Topics(*(f"nowhere.{letter}" for letter in "abcdefg"))
    write_call(tmp_path, "call", SECOND)

    for arguments in (["produce", str(tmp_path)], ["tail"]):
        status, _, err = finished(command(broker, topics, *arguments))
        assert status == 1
        assert "there is no topic nowhere." in err
        assert "Traceback" not in err


def record(text: str, is_final: bool) -> bytes:
    return json.dumps(
        {
            "session_id": "call-1",
            "segment_id": "call-1:0-0:0:0",
            "channel": 0,
            "role": "agent",
            "start": 0.5,
            "end": 1.5,
            "is_final": is_final,
            "alternatives": [{"transcript": text}],
        }
    ).encode()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_tail_shows_what_comes_after_its_start_until_it_is_stopped(
    broker: str, unique_topics: UniqueTopics, tmp_path: Path, stop: signal.Signals
) -> None:
    topics = unique_topics()
    produce(broker, [Message(topics.transcripts, b"call-1", record("before", True))])
    shown = tmp_path / "shown"
    with open(shown, "wb") as out:
        tail = subprocess.Popen(
            [sys.executable, "-u", "-m", "worker", "tail"],
            env={n: text for n, text in os.environ.items() if not n.startswith("OASR_")}
            | topics.environment()
            | {"OASR_KAFKA__BOOTSTRAP_SERVERS": broker},
            stdout=out,
        )

    def heard() -> bool:
        # tail says nothing when it begins to listen, so it is spoken to until it has heard
        produce(broker, [Message(topics.partials, b"call-1", record("during", False))])
        return "during" in shown.read_text()

    wait_until("tail shows a partial", heard)
    produce(broker, [Message(topics.transcripts, b"call-1", record("after", True))])
    wait_until("tail shows a final", lambda: "after" in shown.read_text())
    tail.send_signal(stop)

    assert tail.wait(20) == (0 if stop is signal.SIGINT else 128 + stop)
    assert "before" not in shown.read_text()
    assert "Traceback" not in shown.read_text()


def test_tail_from_the_beginning_shows_what_is_there(
    broker: str, unique_topics: UniqueTopics
) -> None:
    topics = unique_topics()
    produce(broker, [Message(topics.transcripts, b"call-1", record("before", True))])

    tail = command(broker, topics, "tail", "--from-beginning")
    assert tail.stdout is not None
    assert tail.stdout.readline().split()[-1] == "before"
    tail.send_signal(signal.SIGINT)

    assert finished(tail)[0] == 0
