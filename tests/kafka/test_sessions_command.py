"""`oasr-worker sessions`: an operator finds what holds a commit back, and releases it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.support.kafka import (
    Topics,
    WorkerProcess,
    committed,
    consume_all,
    produce,
    wait_until,
)
from tests.support.worker_calls import call_messages, ended, excerpt

GROUP = "surveyed"
READY_S = 240.0


class Commands:
    """Runs `oasr-worker sessions …` as an operator would."""

    def __init__(self, broker: str, topics: Topics) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("OASR_")}
        self._environment = {
            **kept,
            **topics.environment(),
            "OASR_KAFKA__BOOTSTRAP_SERVERS": broker,
            "OASR_KAFKA__GROUP": GROUP,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "worker", "sessions", *arguments],
            env={**self._environment, "COLUMNS": "160"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def listed(self) -> list[dict[str, Any]]:
        found = self.run("list", "--json")
        assert found.returncode == 0, found.stderr
        return orjson.loads(found.stdout)  # type: ignore[no-any-return]


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_an_operator_finds_the_call_that_pins_a_partition_and_ends_it(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=2)
    commands = Commands(broker, topics)
    # It began to speak and is silent since: nothing else moves its partition.
    hung = call_messages(topics, "hung [call]", excerpt(0, 0.0, 4.0))[:-1]
    over = call_messages(topics, "over", excerpt(1, 0.0, 4.0))
    places = produce(broker, [*hung, *over])
    (at,) = {place[0] for place in places[: len(hung)]}

    worker = worker_process(topics, GROUP, {"OASR_SESSIONS__IDLE_FINALIZE_MS": "600000"})
    worker.start()
    try:
        worker.await_ready(READY_S)
        consume_all(broker, topics.events, lambda found: bool(ended(found)), timeout_s=120)

        def pinned() -> bool:
            return committed(broker, GROUP, topics.chunks).get(at) is not None and bool(
                commands.listed()[at]["sessions"]
            )

        wait_until("the hung call is in a commit", pinned)
        parts = commands.listed()
        assert [part["partition"] for part in parts] == [0, 1]
        assert [len(part["sessions"]) for part in parts] == [int(n == at) for n in range(2)]
        (session,) = parts[at]["sessions"]
        assert session["session_id"] == "hung [call]"
        assert session["pins"]
        assert session["first_open"] == parts[at]["committed"]
        assert session["channels"] == 2
        assert 0 <= session["open_s"] < 600
        told = commands.run("list")
        (line,) = [line for line in told.stdout.splitlines() if "hung [call]" in line]
        assert "pins the commit" in line

        aborted = commands.run("abort", "hung [call]", "nobody")
        assert aborted.returncode == 0, aborted.stderr
        assert "hung [call]: done" in aborted.stdout
        assert "nobody: no open session is known" in aborted.stdout

        assert [part["sessions"] for part in commands.listed()] == [[], []]
    finally:
        if worker.running:
            worker.terminate(READY_S)
    endings = ended(consume_all(broker, topics.events))
    assert {session: event["reason"] for session, event in endings.items()} == {
        "hung [call]": "abort",
        "over": "end",
    }


def test_a_group_without_commits_has_nothing_open(
    broker: str, unique_topics: Callable[..., Topics]
) -> None:
    commands = Commands(broker, unique_topics(partitions=1))

    (part,) = commands.listed()
    assert (part["committed"], part["sessions"]) == (None, [])
    assert "no commit of 0, 0 open" in commands.run("list").stdout


def test_an_abort_that_no_worker_takes_says_so(
    broker: str, unique_topics: Callable[..., Topics]
) -> None:
    aborted = Commands(broker, unique_topics(partitions=1)).run("abort", "gone", "--wait", "1")

    assert aborted.returncode == 1
    assert "no worker runs" in aborted.stderr


def test_a_topic_that_is_not_there_is_one_line(
    broker: str, unique_topics: Callable[..., Topics]
) -> None:
    topics = unique_topics(partitions=1)
    commands = Commands(broker, topics)
    commands._environment["OASR_TOPICS__CHUNKS"] = "nowhere"

    told = commands.run("list")

    assert told.returncode == 1
    assert len(told.stderr.splitlines()) == 1, told.stderr
