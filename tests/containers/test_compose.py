"""docker-compose.yml from the first `up` to a `down` that leaves nothing, with trouble between."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.bundled_calls import CALLS, assert_all_was_heard
from tests.support.compose import Project, docker
from tests.support.kafka import consume_all, wait_until
from tests.support.worker_calls import all_ended, body
from worker.devkafka_node import free_ports
from worker.messages import RawMessage
from worker.settings import Settings

TOPICS = Settings.model_fields["topics"].default
PATIENCE_S = 400.0
PLAYED = len(list(CALLS.glob("*.wav")))
PORTS = ("KAFKA_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT", "UI_PORT")
SERVICES = ["kafka", "topics", "worker", "worker-ui", "transcripts", "player", "prometheus"]


@pytest.fixture
def project() -> Iterator[Project]:
    """The services under a name and on ports that nobody else has; nothing is left of them."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    started = Project(f"oasr-test-{os.getpid()}", ports, ["demo", "observability", "ui"])
    try:
        yield started
    finally:
        started.down()


def services() -> list[str]:
    """All but the one for GPUs, and Grafana only where its image is here: Debian has none."""
    grafana = os.environ.get("GRAFANA_IMAGE", "grafana/grafana:12.1.0")
    found = subprocess.run(
        ["docker", "image", "inspect", grafana], capture_output=True, check=False
    )
    return [*SERVICES, *(["grafana"] if found.returncode == 0 else [])]


@pytest.mark.timeout(1800)
def test_calls_are_played_and_heard_while_a_worker_dies_and_others_come(project: Project) -> None:
    brokers = f"localhost:{project.ports['KAFKA_PORT']}"
    project.up([name for name in services() if name != "player"], workers=2)
    assert project.exit_codes("topics") == [0]
    wait_until("both workers are well", lambda: project.healthy("worker") == [True] * 2, PATIENCE_S)

    project.up(services(), workers=2)
    consume_all(brokers, TOPICS.transcripts, until=a_final, timeout_s=PATIENCE_S)
    docker("kill", project.running("worker")[0])
    project.up(services(), workers=3)
    consume_all(brokers, TOPICS.events, all_ended(PLAYED), timeout_s=PATIENCE_S)

    finals = assert_all_was_heard(
        consume_all(brokers, TOPICS.transcripts), consume_all(brokers, TOPICS.events)
    )
    assert len(finals) == PLAYED
    assert consume_all(brokers, TOPICS.dead_letters) == []
    wait_until("the player is done", lambda: project.exit_codes("player") == [0], PATIENCE_S)
    assert all_are_shown(project.logs("transcripts"), finals)
    wait_until("Prometheus sees all workers", lambda: scraped(project) >= 4, PATIENCE_S)
    assert loaded_rules(project) is not None
    assert "<html" in fetch(project.ports["UI_PORT"], "/")
    assert_it_ends_well(project)


def a_final(records: list[RawMessage]) -> bool:
    """For `consume_all`: true as soon as something was understood."""
    return any(body(raw).get("is_final") for raw in records)


def all_are_shown(log: str, finals: dict[str, int]) -> bool:
    """Whether `tail` has shown every session."""
    return all(session in log for session in finals)


def fetch(port: int, path: str) -> str:
    """What a published port answers."""
    with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def query(project: Project, path: str) -> dict[str, object]:
    """What Prometheus answers."""
    told: dict[str, object] = json.loads(fetch(project.ports["PROMETHEUS_PORT"], f"/api/v1/{path}"))
    assert told["status"] == "success"
    return told["data"]  # type: ignore[return-value]


def scraped(project: Project) -> int:
    """Workers that Prometheus reads the assigned partitions of."""
    expression = urllib.parse.quote('count(oasr_worker_assigned_partitions{job="oasr-worker"})')
    result = query(project, f"query?query={expression}")["result"]
    return int(result[0]["value"][1]) if result else 0  # type: ignore[index]


def loaded_rules(project: Project) -> list[object] | None:
    """The rules that Prometheus has loaded, none of which has an error; else None."""
    groups = query(project, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]  # type: ignore[attr-defined]
    return rules if rules and all(rule["health"] != "err" for rule in rules) else None


def assert_it_ends_well(project: Project) -> None:
    """A stop ends every process in order; a `down` leaves nothing."""
    wait_until("three workers work", lambda: project.ready("worker") == 3, PATIENCE_S)
    alive = {c["Id"] for c in project.containers("worker") if c["State"]["Running"]}
    assert len(alive) == 3
    project.run("stop")
    stopped = {c["Id"]: c["State"]["ExitCode"] for c in project.containers("worker")}
    assert {stopped[one] for one in alive} == {0}
    project.down()
    assert project.left() == {"container": [], "network": [], "volume": []}
