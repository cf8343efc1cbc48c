"""`oasr-worker dead-letters`: what was refused is found, and works once its cause is gone."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.kafka import Message, Topics, WorkerProcess, consume_all, produce
from tests.support.worker_calls import ended, excerpt, readings
from worker.cli import main
from worker.messages import RawMessage

GROUP = "second-chance"
HOSTILE = (("x", b"\xff\xfe"), ("x", b""), ("x", b"\xff\xfe"))
READY_S = 240.0
Capture = pytest.CaptureFixture[str]


class Commands:
    """`oasr-worker dead-letters …` in this process, which has imported everything already."""

    def __init__(
        self, broker: str, topics: Topics, monkeypatch: pytest.MonkeyPatch, capsys: Capture
    ) -> None:
        for name in [name for name in os.environ if name.startswith("OASR_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("OASR_KAFKA__BOOTSTRAP_SERVERS", broker)
        monkeypatch.setenv("COLUMNS", "200")
        for name, text in topics.environment().items():
            monkeypatch.setenv(name, text)
        monkeypatch.setattr("sys.stdin", io.StringIO())
        self._capsys = capsys

    def run(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """What it says on stdout and on stderr."""
        before = signal.getsignal(signal.SIGTERM)
        self._capsys.readouterr()
        found = main(["dead-letters", *arguments])
        signal.signal(signal.SIGTERM, before)
        told = self._capsys.readouterr()
        assert found == status, told.err
        return told.out, told.err

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        out, _ = self.run("list", "--json", *arguments)
        return [orjson.loads(line) for line in out.splitlines()]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Callable[[str, Topics], Commands]:
    return lambda broker, topics: Commands(broker, topics, monkeypatch, capsys)


def refused_messages(topics: Topics) -> list[tuple[Message, str]]:
    """Messages with their codes; the first two work once the settings name what they lack."""
    speech = excerpt(0, 0.0, 5.0)
    whole_call = bytes(speech.piece(0, len(speech.data)))
    headers = (
        *(("sample_rate", b"8000"), ("channels", b"2"), ("event", b"end")),
        *HOSTILE,
    )
    large = whole_call + b"\xff" * (2 << 20)
    full = (("encoding", b"mulaw"), *headers)
    opus = (("encoding", b"opus"), ("sample_rate", b"8000"), *HOSTILE)
    chunks = topics.chunks
    return [
        (Message(chunks, b"unnamed", whole_call, headers, 0), "encoding_required"),
        (Message(chunks, b"large", large, full, 0), "value_too_large"),
        (Message(chunks, b"opus", b"packet", opus, 0), "encoding_unsupported"),
        (Message(chunks, None, b"", (("event", b"flush"),), 0), "key_required"),
    ]


def header_lists(raw: RawMessage) -> list[tuple[str, bytes | None]]:
    """The producer's headers of a dead letter or of a replayed message."""
    ours = ("error.", "source.", "value.", "replay.")
    return [(n, v) for n, v in raw.headers if not n.startswith(ours) and n != "attempts"]


@pytest.mark.timeout(600)
def test_what_was_refused_is_found_and_works_once_its_cause_is_gone(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
    commands: Callable[[str, Topics], Commands],
    tmp_path: Path,
) -> None:
    topics = unique_topics(partitions=1)
    command = commands(broker, topics)
    refused = refused_messages(topics)
    produce(broker, [message for message, _ in refused])
    worker = worker_process(topics, GROUP)
    worker.start()
    try:
        worker.await_ready(READY_S)
        letters = consume_all(
            broker, topics.dead_letters, lambda found: len(found) >= len(refused), timeout_s=120
        )
    finally:
        worker.terminate(READY_S)

    assert [entry["code"] for entry in command.listed()] == [code for _, code in refused]
    (large,) = command.listed("--code", "value_too_large", "--key", "large")
    assert (large["value"], large["source"]["offset"]) == ("reference", 1)
    assert command.listed("--until", "1d") == command.listed("--topic", "nowhere") == []
    assert len(command.listed("--since", "1h", "--limit", "3")) == 3
    assert "  x: \\xff\\xfe" in command.run("show", large["id"])[0]
    command.run("show", "0:1", "--value", str(tmp_path / "value"))
    assert (tmp_path / "value").read_bytes() == refused[1][0].value
    command.run("show", "0:99", status=1)
    dry, _ = command.run("replay", "--dry-run", "--code", "encoding_required")
    assert f"0:0 encoding_required -> {topics.chunks}: unnamed" in dry
    _, told = command.run("replay", "--yes", "--rate", "50")
    assert told.splitlines() == ["4 replayed", "to go on behind what is done: --after 0:3"]
    for came, (sent, _) in zip(letters, refused, strict=True):
        assert header_lists(came) == list(sent.headers)
    again = consume_all(broker, topics.chunks)[len(refused) :]
    for replayed, (sent, _) in zip(again, refused, strict=True):
        assert (replayed.key, replayed.value) == (sent.key, sent.value)
        assert list(replayed.headers) == [*sent.headers, ("replay.attempts", b"1")]

    fixed = {"OASR_AUDIO__ENCODING": "mulaw", "OASR_AUDIO__MAX_VALUE_BYTES": str(4 << 20)}
    with worker_process(topics, GROUP, fixed, name="fixed"):
        endings = ended(
            consume_all(broker, topics.events, lambda found: len(ended(found)) >= 2, timeout_s=150)
        )
        later = consume_all(
            broker, topics.dead_letters, lambda found: len(found) >= 6, timeout_s=120
        )
    assert sorted(endings) == ["large", "unnamed"]
    finals = consume_all(broker, topics.transcripts)
    texts = {
        key: [readings(raw)[0] for raw in finals if raw.key == key and readings(raw)[0]]
        for key in (b"unnamed", b"large")
    }
    assert texts[b"unnamed"]
    assert texts[b"unnamed"] == texts[b"large"]
    # what is refused again has been tried twice, and is left where that is enough
    assert [entry["attempts"] for entry in command.listed()] == [1, 1, 1, 1, 2, 2]
    assert [header_lists(raw) for raw in later[4:]] == [header_lists(raw) for raw in letters[2:]]
    left = ("replay", "--yes", "--after", "0:3", "--max-attempts", "2")
    _, told = command.run(*left, status=1)
    assert told.splitlines()[-2] == "0 replayed, 2 cannot be"


def test_a_topic_that_is_not_there_is_one_line(
    broker: str,
    unique_topics: Callable[..., Topics],
    commands: Callable[[str, Topics], Commands],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = commands(broker, unique_topics(partitions=1))
    monkeypatch.setenv("OASR_TOPICS__DEAD_LETTERS", "nowhere")

    _, told = command.run("list", status=1)

    why = "there is no topic nowhere, or no right to see it"
    assert told == f"{why} (oasr-worker topics --create)\n"
