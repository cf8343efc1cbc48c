from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker import devkafka, devkafka_jars
from worker.devkafka import BrokerKind, BrokerOptions, BrokerUnavailable, local_broker
from worker.devkafka_guard import end, guarded
from worker.devkafka_jars import java_program, kafka_jars
from worker.devkafka_node import cluster_id, free_ports
from worker.devkafka_properties import as_environment, as_file, node_properties, quorum
from worker.devkafka_ready import await_broker

WAIT_S = 20.0


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Ladder:
    """Rungs that hold or break as told, in the place of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, holding: set[BrokerKind]) -> None:
        self.holding = holding
        self.tried: list[BrokerKind] = []
        self.left: list[BrokerKind] = []
        self.said: list[str] = []
        monkeypatch.setattr(devkafka, "_rung", lambda kind, *_: self.rung(kind))

    @contextmanager
    def rung(self, kind: BrokerKind) -> Iterator[str]:
        self.tried.append(kind)
        if kind not in self.holding:
            raise BrokerUnavailable("broken")
        yield f"{kind.value}:1"
        self.left.append(kind)


def test_the_first_rung_that_holds_is_taken_and_left_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ladder = Ladder(monkeypatch, {BrokerKind.CONTAINER, BrokerKind.MOCK})

    with local_broker(say=ladder.said.append) as broker:
        assert broker.bootstrap_servers == "container:1"
        assert broker.creates_topics
        assert ladder.left == []

    assert ladder.tried == [BrokerKind.KAFKA, BrokerKind.CONTAINER]
    assert ladder.left == [BrokerKind.CONTAINER]
    assert ladder.said == [
        "no broker of kind kafka: broken",
        "broker: container at container:1",
    ]


def test_a_named_broker_is_used_or_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = Ladder(monkeypatch, {BrokerKind.KAFKA, BrokerKind.MOCK})

    with (
        pytest.raises(BrokerUnavailable, match="given: broken"),
        local_broker(BrokerOptions(bootstrap_servers="there:1")),
    ):
        pass

    assert ladder.tried == [BrokerKind.GIVEN]


def test_only_allowed_kinds_are_tried_and_all_reasons_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Ladder(monkeypatch, {BrokerKind.MOCK})

    with (
        pytest.raises(BrokerUnavailable, match=r"kafka: broken; container: broken"),
        local_broker(BrokerOptions(kinds=devkafka.REAL_BROKERS)),
    ):
        pass


def test_the_broker_is_stopped_when_the_block_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = Ladder(monkeypatch, {BrokerKind.KAFKA})

    with pytest.raises(ZeroDivisionError), local_broker():
        _ = 1 / 0

    assert ladder.left == [BrokerKind.KAFKA]


def test_the_mock_cluster_says_what_it_is_and_answers() -> None:
    said: list[str] = []

    with local_broker(BrokerOptions(kinds=(BrokerKind.MOCK,)), say=said.append) as broker:
        await_broker(broker.bootstrap_servers, timeout_s=10)

    assert not broker.creates_topics
    assert "mock cluster" in said[0]


def test_a_broker_that_nobody_runs_is_unavailable() -> None:
    (port,) = free_ports(1)

    with pytest.raises(BrokerUnavailable, match="does not answer within 1 s"):
        await_broker(f"127.0.0.1:{port}", timeout_s=1)


def test_a_broker_whose_process_has_ended_is_not_waited_for() -> None:
    (port,) = free_ports(1)
    began = time.monotonic()

    with pytest.raises(BrokerUnavailable, match="ended before it answered"):
        await_broker(f"127.0.0.1:{port}", timeout_s=60, alive=lambda: False)

    assert time.monotonic() - began < 30


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_cluster_id_is_sixteen_bytes_that_do_not_look_like_an_option() -> None:
    ids = [cluster_id() for _ in range(200)]

    assert all(len(one) == 22 and not one.startswith("-") for one in ids)
    assert len(set(ids)) == 200


def test_three_nodes_replicate_everything_and_name_each_other() -> None:
    voters = quorum({1: "a:1", 2: "b:2", 3: "c:3"})
    properties = node_properties("b:5", "b:5", "b:2", number=2, voters=voters)
    alone = node_properties("b:5", "b:5", "b:2")

    assert properties["controller.quorum.voters"] == "1@a:1,2@b:2,3@c:3"
    assert properties["node.id"] == "2"
    replicas = {k: v for k, v in properties.items() if k.endswith("replication.factor")}
    assert set(replicas.values()) == {"3"}
    assert len(replicas) == 4
    assert properties["min.insync.replicas"] == "2"
    assert alone["controller.quorum.voters"] == "1@b:2"
    assert alone["offsets.topic.replication.factor"] == "1"


def test_a_node_s_properties_as_file_and_as_environment_say_the_same() -> None:
    properties = node_properties("127.0.0.1:5", "host:6", "127.0.0.1:7")

    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:5,CONTROLLER://127.0.0.1:7"
    assert properties["advertised.listeners"] == "PLAINTEXT://host:6"
    lines = as_file(properties).splitlines()
    assert dict(line.split("=", 1) for line in lines) == properties
    environment = as_environment(properties)
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://host:6"
    assert list(environment.values()) == list(properties.values())


# --- jars


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the path, for programs made up by the test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(
        devkafka_jars.shutil,
        "which",
        lambda name: str(folder / name) if (folder / name).exists() else None,
    )
    return folder


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


MAVEN = """
for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${word#*=}";; esac; done
mkdir -p "$out" && touch "$out/kafka.jar" && echo run >> "$(dirname "$0")/runs"
"""


def test_no_java_and_an_old_one_are_told(programs: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="no java"):
        java_program()
    program(programs, "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(BrokerUnavailable, match="Java 17"):
        java_program()
    program(programs, "java", "echo 'openjdk version \"21.0.1\" 2023' >&2")
    assert java_program() == str(programs / "java")


def test_jars_are_fetched_once_and_then_found(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", MAVEN)
    said: list[str] = []
    cache = tmp_path / "cache"

    first = kafka_jars(cache, said.append)
    second = kafka_jars(cache, said.append)

    assert first == second
    assert [jar.name for jar in first.iterdir()] == ["kafka.jar"]
    assert (programs / "runs").read_text() == "run\n"
    assert len(said) == 1
    assert sorted(path.name for path in cache.iterdir()) == ["libs", "lock"]


def test_two_processes_that_ask_at_once_fetch_once(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", f"sleep 0.5\n{MAVEN}")
    script = (
        "import sys, pathlib, worker.devkafka_jars as jars\n"
        f"jars.shutil.which = lambda name: {str(programs / 'mvn')!r}\n"
        "jars.kafka_jars(pathlib.Path(sys.argv[1]), lambda line: None)\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "cache")]) for _ in "12"]

    assert [one.wait(60) for one in both] == [0, 0]
    assert (programs / "runs").read_text() == "run\n"


def test_a_failed_fetch_says_what_maven_said_and_leaves_nothing(
    programs: Path, tmp_path: Path
) -> None:
    program(programs, "mvn", "echo no such artifact; exit 1")

    with pytest.raises(BrokerUnavailable, match="no such artifact"):
        kafka_jars(tmp_path / "cache", lambda _line: None)

    assert not (tmp_path / "cache" / "libs").exists()


def test_without_maven_and_without_jars_there_is_no_kafka(programs: Path, tmp_path: Path) -> None:
    assert programs.exists()
    with pytest.raises(BrokerUnavailable, match="no mvn"):
        kafka_jars(tmp_path / "cache", lambda _line: None)


# --- guard


def pid_written_to(path: Path) -> int:
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_a_guarded_command_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    note = tmp_path / "pid"
    owner_script = (
        "import sys, time\n"
        "from worker.devkafka_guard import guarded\n"
        "command = ['sh', '-c', f'echo $$ > {sys.argv[1]}; exec sleep 300']\n"
        "guard = guarded(['--remove', sys.argv[2], *command], open('/dev/null', 'wb'))\n"
        "time.sleep(300)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", owner_script, str(note), str(folder)])
    pid = pid_written_to(note)
    assert alive(pid)

    owner.kill()
    owner.wait()

    wait_for(lambda: not alive(pid))
    wait_for(lambda: not folder.exists())


def test_a_command_that_dies_while_its_owner_lives_leaves_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    note = tmp_path / "pid"
    options = ["--remove", str(folder), "--pid", str(note)]
    with open(tmp_path / "log", "wb") as log:
        guard = guarded([*options, "sleep", "300"], log)

    os.kill(pid_written_to(note), signal.SIGKILL)

    assert guard.wait(WAIT_S) == -signal.SIGKILL % 256
    end(guard)
    assert folder.exists()


def test_ending_a_guard_ends_its_command_and_tells_how(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        guard = guarded(
            ["sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done"], log
        )
    wait_for(lambda: (tmp_path / "log").read_text() == "up\n")

    assert end(guard) == 7


def test_a_signal_to_the_guard_reaches_its_command(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        guard = guarded(
            ["sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done"], log
        )
    wait_for(lambda: (tmp_path / "log").read_text() == "up\n")

    os.kill(guard.pid, signal.SIGTERM)

    assert guard.wait(WAIT_S) == 9
    assert end(guard) == 9


def test_a_guard_gives_the_status_of_a_command_that_ends_by_itself(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        guard = guarded(["sh", "-c", "exit 3"], log)

    assert guard.wait(WAIT_S) == 3
    assert end(guard) == 3
