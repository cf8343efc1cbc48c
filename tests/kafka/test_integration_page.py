"""The programs of docs/integration.md do what the page says, on a real broker and a real worker."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.kafka import Topics, WorkerProcess, admin_client, consume_all
from tests.support.worker_calls import CALLS, RECORDINGS, body, record_id
from worker.devkafka import Broker
from worker.devkafka_jars import kafka_jars
from worker.messages import RawMessage
from worker.settings import Settings
from worker.topics import ensure_topics, topic_specs

PAGE = "integration.md"
# The page names the topics as they are called by default.
TOPICS = Topics(
    chunks="oasr.audio.chunks",
    files="oasr.audio.files",
    transcripts="oasr.transcripts",
    partials="oasr.transcripts.partial",
    events="oasr.events",
    dead_letters="oasr.dead-letters",
    state="oasr.state",
)
SEVERAL = ["a", "call-1", "anruf-zürich-7", "+358 40 1234567", "0" * 256] + [
    uuid.UUID(int=number << 64).hex for number in range(15)
]


@pytest.fixture(scope="module")
def brokers(real_broker: Broker) -> Iterator[str]:
    """Brokers with the worker's topics under their default names."""
    specs = topic_specs(Settings(kafka={"bootstrap_servers": real_broker.bootstrap_servers}))
    with admin_client(real_broker.bootstrap_servers) as admin:
        made = ensure_topics(admin, specs)
        yield real_broker.bootstrap_servers
        for deleted in admin.delete_topics(made).values() if made else ():
            deleted.result()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return pages.programs(PAGE, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw call, cut out of the bundled one by the page's own command."""
    (line,) = [
        line
        for block in pages.blocks(PAGE, "sh")
        for line in block.splitlines()
        if line.startswith("tail ")
    ]
    folder = tmp_path_factory.mktemp("recording")
    pages.run("sh", "-c", line.replace("call.ulaw", f"{folder}/call.ulaw"))
    return folder / "call.ulaw"


@pytest.fixture(scope="module")
def worker(brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    with WorkerProcess(brokers, TOPICS, f"page-{uuid.uuid4().hex[:8]}", log):
        yield


def conversation(lines: list[str]) -> list[tuple[str, str]]:
    """Who said what, of the lines that the page's reader prints."""
    said = [line.split(maxsplit=1)[1].split(": ", 1) for line in lines]
    return [(role, text) for role, text in said]


def known_texts() -> set[tuple[str, str]]:
    """What was really said in the bundled call."""
    beside = json.loads(CALLS[0].with_suffix(".json").read_text(encoding="utf-8"))
    return {(segment["role"], segment["text"]) for segment in beside["segments"]}


@pytest.mark.timeout(480)
@pytest.mark.usefixtures("worker")
def test_calls_sent_from_python_and_kcat_are_read_as_the_same_conversation(
    brokers: str, programs: dict[str, Path], recording: Path
) -> None:
    run = uuid.uuid4().hex[:8]
    call_ids = [f"python-{run}"]
    pages.run(sys.executable, programs["send_call.py"], brokers, recording, call_ids[0])
    if shutil.which("kcat") is not None:
        for script in ("send_call.sh", "send_numbered.sh"):
            call_ids.append(f"{script}-{run}")
            pages.run("bash", programs[script], brokers, recording, call_ids[-1])

    heard = [
        pages.run(sys.executable, programs["read_call.py"], brokers, call_id).splitlines()
        for call_id in call_ids
    ]

    assert all(lines == heard[0] for lines in heard)
    said = conversation(heard[0])
    assert {role for role, _ in said} == {"agent", "customer"}
    known = known_texts()
    assert len(known & set(said)) >= len(known) * 3 // 4


@pytest.mark.timeout(480)
@pytest.mark.usefixtures("worker")
def test_a_call_is_sent_and_read_with_kcat_alone(
    brokers: str, programs: dict[str, Path], recording: Path
) -> None:
    pages.require_kcat()
    call_id = f"kcat-{uuid.uuid4().hex[:8]}"

    pages.run("bash", programs["send_call.sh"], brokers, recording, call_id)
    lines = pages.run("bash", programs["read_call.sh"], brokers, call_id).splitlines()

    finals = [json.loads(line) for line in lines]
    assert {final["session_id"] for final in finals} == {call_id}
    said = {(final["role"], final["alternatives"][0]["transcript"]) for final in finals}
    known = known_texts()
    assert len(known & said) >= len(known) * 3 // 4


@pytest.mark.timeout(480)
@pytest.mark.usefixtures("worker")
def test_a_recording_sent_from_python_comes_back_with_words(
    brokers: str, programs: dict[str, Path]
) -> None:
    file_id = f"voicemail-{uuid.uuid4().hex[:8]}"
    pages.run(sys.executable, programs["send_file.py"], brokers, RECORDINGS[0], file_id)

    def completed(events: list[RawMessage]) -> bool:
        return any(body(raw).get("file_id") == file_id for raw in events)

    consume_all(brokers, TOPICS.events, completed, timeout_s=120)
    mine = [r for r in consume_all(brokers, TOPICS.transcripts) if r.key == file_id.encode()]
    readings = [body(raw)["alternatives"][0] for raw in mine]  # type: ignore[index]
    assert any(reading["transcript"] for reading in readings)
    assert all("words" in reading for reading in readings if reading["transcript"])
    assert len({record_id(raw) for raw in mine}) == len(mine)


@pytest.mark.timeout(480)
def test_a_call_lies_on_one_partition_whichever_client_sends_it(
    brokers: str,
    programs: dict[str, Path],
    own_kafka: Path,
    tmp_path: Path,
) -> None:
    pages.require_jdk()
    pages.require_kcat()
    tiny = tmp_path / "tiny.ulaw"
    tiny.write_bytes(b"\xff" * 4000)
    jars = kafka_jars(own_kafka, sys.stderr.write)

    pages.run(sys.executable, programs["send_call.py"], brokers, tiny, *SEVERAL)
    java = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", programs["SendCall.java"])
    pages.run(*java, brokers, tiny, *SEVERAL)
    for call_id in SEVERAL[:4]:
        pages.run("bash", programs["send_call.sh"], brokers, tiny, call_id)

    places: dict[str, list[int]] = {}
    for raw in consume_all(brokers, TOPICS.chunks):
        places.setdefault((raw.key or b"").decode(), []).append(raw.partition)
    for number, call_id in enumerate(SEVERAL):
        # two chunks and the end, of each client
        assert len(places[call_id]) >= 3 * (3 if number < 4 else 2)
        assert len(set(places[call_id])) == 1
    assert len({places[call_id][0] for call_id in SEVERAL}) >= 6
