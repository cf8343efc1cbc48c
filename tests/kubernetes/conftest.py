"""A node, a namespace under restricted Pod Security with Kafka in it, and the chart in that.

`run` makes binaries and images; KUBECONFIG names the cluster, OASR_IMAGE and KAFKA_IMAGE what runs.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chart import overlaid
from tests.support.kafka import Topics, wait_until
from tests.support.kubernetes import Namespace, Release, image_of, node_address

HERE = Path(__file__).parent
OUTSIDE_PORT = 30092
SERVICE = "10.96.0.92"  # inside of the usual range of service addresses
PARTITIONS = 4

UNPREPARED = pytest.mark.skipif(
    not {"KUBECONFIG", "OASR_IMAGE", "KAFKA_IMAGE"} <= os.environ.keys(),
    reason="`make test-kubernetes` prepares a cluster and images in it",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
            item.add_marker(UNPREPARED)


@pytest.fixture(scope="session")
def namespace() -> Iterator[Namespace]:
    """An empty namespace that refuses every pod which is not restricted."""
    made = Namespace("oasr-test")
    made.delete()
    made.create(pod_security="restricted")
    try:
        yield made
    finally:
        made.delete()


@pytest.fixture(scope="session")
def kafka(namespace: Namespace) -> str:
    """Bootstrap servers of a broker in a pod, as the machine outside of the cluster reaches it."""
    host = node_address()
    manifest = (HERE / "kafka.yaml").read_text(encoding="utf-8")
    for name, value in {
        "SERVICE": SERVICE,
        "HOST": host,
        "PORT": str(OUTSIDE_PORT),
        "IMAGE": ":".join(image_of("KAFKA_IMAGE")),
    }.items():
        manifest = manifest.replace(name, value)
    namespace.kubectl("apply", "--filename", "-", given=manifest)
    namespace.kubectl("wait", "--for=condition=Ready", "pod/kafka", "--timeout=300s")
    wait_until("the node's port answers", lambda: _answers(host, OUTSIDE_PORT), 60)
    return f"{host}:{OUTSIDE_PORT}"


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Topics:
    """Names of topics of a test's own, which the chart's job creates."""
    number = request.session.items.index(request.node)
    return Topics(
        *(
            f"test-{number}.{name}"
            for name in ("chunks", "files", "transcripts", "partials", "events", "dead", "state")
        )
    )


@pytest.fixture
def make_release(
    namespace: Namespace, kafka: str, topics: Topics, tmp_path: Path
) -> Iterator[Callable[..., Release]]:
    """The chart under a name and with more values, not installed yet; nothing stays of it."""
    assert kafka
    made: list[Release] = []

    def make(name: str, more: dict[str, Any]) -> Release:
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(overlaid(_values(topics), more)), encoding="utf-8")
        made.append(Release(namespace, name, path))
        return made[-1]

    try:
        yield make
    finally:
        for release in made:
            namespace.helm("uninstall", release.name, "--ignore-not-found", "--wait")


def _values(topics: Topics) -> dict[str, Any]:
    """Two workers; calls stay open however slow the test is."""
    repository, tag = image_of("OASR_IMAGE")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "replicas": 2,
        "kafka": {
            "bootstrapServers": f"{SERVICE}:19092",
            "groupId": topics.chunks,
            "partitions": PARTITIONS,
            "topics": {
                "chunks": topics.chunks,
                "files": topics.files,
                "transcripts": topics.transcripts,
                "partials": topics.partials,
                "events": topics.events,
                "deadLetters": topics.dead_letters,
                "state": topics.state,
            },
        },
        "topics": {"mode": "job", "replicationFactor": 1},
        "workload": {"minReadySeconds": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
        "extraEnv": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "config": {"sessions": {"idle_finalize_ms": 3_600_000, "ttl_ms": 7_200_000}},
    }
