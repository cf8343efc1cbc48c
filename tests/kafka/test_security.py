"""A worker on a broker that asks who is there and lets nobody do more than ACLs say."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.files import wav
from tests.support.kafka import (
    Message,
    Topics,
    WorkerProcess,
    consume_all,
    create_topics,
    produce,
    wait_until,
)
from tests.support.letters import refused
from tests.support.secured_kafka import (
    CERTIFIED_USER,
    KEY_PASSWORD,
    PASSWORD,
    USER,
    SecuredNode,
    command_rights,
    least_rights,
    secured_kafka,
)
from tests.support.talk import talk
from tests.support.worker_calls import all_ended, body, call_messages, ended, excerpt
from worker import cli
from worker.devkafka import Broker, BrokerKind
from worker.messages import RawMessage


@pytest.fixture(scope="module")
def node(own_kafka: Path) -> Iterator[SecuredNode]:
    with secured_kafka(own_kafka) as running:
        yield running


@pytest.fixture
def topics(node: SecuredNode) -> Topics:
    return create_topics(Broker(node.address, BrokerKind.KAFKA), partitions=1)


@pytest.fixture
def group() -> str:
    return f"secured-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def _signed_in(node: SecuredNode, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process are those of the user."""
    for name, value in {**node.sasl_settings(), **topics.environment()}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("user", "mode"), [(USER, "at-least-once"), (CERTIFIED_USER, "exactly-once")]
)
def test_the_documented_rights_are_enough_for_calls_recordings_and_dead_letters(
    node: SecuredNode, topics: Topics, group: str, tmp_path: Path, user: str, mode: str
) -> None:
    node.allow(least_rights(topics, group, mode == "exactly-once").values(), user)
    signed_in = node.sasl_settings(mode) if user == USER else node.tls_settings(mode)
    log = tmp_path / "worker.log"
    settings = {**signed_in, "OASR_LOG__LEVEL": "DEBUG"}
    with WorkerProcess(node.address, topics, group, log, settings) as worker:
        call = call_messages(topics, "call", excerpt(0, 0.0, 6.0))
        job = Message(topics.files, b"file", b"no recording", {"content-type": "audio/wav"})
        produce(node.address, [*call, job])
        events = consume_all(node.address, topics.events, until=all_ended(1), timeout_s=90)
        letters = consume_all(
            node.address, topics.dead_letters, until=lambda found: len(found) == 1, timeout_s=90
        )
        wait_until("partials are there", lambda: bool(consume_all(node.address, topics.partials)))
        assert worker.terminate() == 0, worker.log()[-4000:]

    told = ended(events)["call"]["finals"]
    assert isinstance(told, int)
    assert told > 0
    finals = consume_all(node.address, topics.transcripts, until=lambda found: len(found) == told)
    assert {body(final)["session_id"] for final in finals} == {"call"}
    assert dict(letters[0].headers)["error.code"] == b"container_invalid"
    assert "authoriz" not in worker.log()
    for secret in (PASSWORD, KEY_PASSWORD):
        assert secret not in worker.log()


@pytest.mark.usefixtures("_signed_in")
def test_the_documented_rights_are_enough_for_each_command(
    node: SecuredNode,
    topics: Topics,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OASR_KAFKA__GROUP", group)
    recording = tmp_path / "short.wav"
    recording.write_bytes(wav(talk(0.5, 8000, seed=1)))
    raw = RawMessage(topics.files, 0, 0, 9, b"file", b"no recording", ())
    letter = refused(raw)
    produce(
        node.address,
        [
            Message(topics.files, raw.key, raw.value),
            Message(topics.dead_letters, letter.key, letter.value, letter.headers),
        ],
    )
    commands = {
        "topics": ["topics"],
        "produce": ["produce", "--speed", "1000", str(recording)],
        "produce files": ["produce", "--files", str(recording)],
        "sessions list": ["sessions", "list"],
        "dead-letters list": ["dead-letters", "list"],
        "dead-letters show": ["dead-letters", "show", "0:0"],
        "dead-letters replay": ["dead-letters", "replay", "--yes"],
    }
    rights = command_rights(topics, group)
    for name, arguments in commands.items():
        node.forbid_all()
        node.allow(rights[name])
        # a broker hears of new rights a moment after they were given
        wait_until(f"{name} works", partial(works, arguments), 60)
        told = capsys.readouterr()
        assert PASSWORD not in told.out + told.err


def works(arguments: list[str]) -> bool:
    """Whether a command ends well; what it does with signals is undone."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return cli.main(arguments) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.usefixtures("_signed_in")
def test_without_rights_a_command_says_what_it_was_refused(
    topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["topics"]) == 1
    shown = capsys.readouterr()
    assert f"{topics.chunks}: missing" in shown.out
    assert PASSWORD not in shown.out + shown.err

    assert cli.main(["topics", "--create"]) == 1
    assert re.search(r"topic .* cannot be created: .*[Aa]uthorization", capsys.readouterr().err)
    assert cli.main(["sessions", "list"]) == 1
    assert "no right to see it" in capsys.readouterr().err
