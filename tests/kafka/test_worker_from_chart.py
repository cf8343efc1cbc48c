"""Workers that know nothing but what the chart renders: one reads calls, one reads files."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.chart import case, overlaid, pod_spec, render, settings_file, workload
from tests.support.deploy import catalogue, promtool
from tests.support.kafka import Message, Topics, WorkerProcess, consume_all, produce
from tests.support.worker_calls import all_ended, body, call_messages, ended, excerpt
from worker.devkafka_node import free_ports

UniqueTopics = Callable[..., Topics]
RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "voicemail-00.wav"


class ReleasedWorker(WorkerProcess):
    """A worker whose only settings are the ConfigMap and the environment of a release."""

    def __init__(self, values: dict[str, Any], folder: Path, name: str) -> None:
        documents = render(values, name)
        (container,) = pod_spec(workload(documents))["containers"]
        settings = folder / f"{name}.yaml"
        settings.write_text(settings_file(documents), encoding="utf-8")
        (mount,) = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "config"]
        self.http_port = container["ports"][0]["containerPort"]
        self.log_path = folder / f"{name}.log"
        self._arguments = [str(settings) if a == mount else a for a in container["args"]]
        self._environment = {v["name"]: v["value"] for v in container["env"]}
        self._process = None

    def start(self) -> None:
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worker", *self._arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def values(lane: str, broker: str, topics: Topics, group: str) -> dict[str, Any]:
    names = topics.environment()
    chart_names = {
        re.sub("_(.)", lambda m: m[1].upper(), name.removeprefix("OASR_TOPICS__").lower()): topic
        for name, topic in names.items()
    }
    (port,) = free_ports(1)
    return overlaid(
        case("minimal"),
        {
            "lanes": lane,
            "kafka": {"bootstrapServers": broker, "groupId": group, "topics": chart_names},
            "http": {"port": port},
            "config": {"http": {"host": "127.0.0.1"}, "commits": {"interval_ms": 200}},
        },
    )


def test_two_releases_share_calls_and_files_and_expose_only_what_is_documented(
    broker: str, unique_topics: UniqueTopics, tmp_path: Path
) -> None:
    topics, group = unique_topics(partitions=1), f"chart-{uuid.uuid4().hex[:8]}"
    live = ReleasedWorker(values("live", broker, topics, group), tmp_path, "live")
    files = ReleasedWorker(values("files", broker, topics, group), tmp_path, "files")
    with live, files:
        recording = Message(
            topics.files, b"mail", RECORDING.read_bytes(), {"content-type": "audio/wav"}
        )
        produce(broker, [*call_messages(topics, "call", excerpt(0, 0.0, 8.0)), recording])
        events = consume_all(broker, topics.events, until=both_done, timeout_s=120)

        assert list(ended(events)) == ["call"]
        assert "oasr_worker_messages_consumed_total" in live.http("/metrics")[1]
        scrapes = {worker: worker.http("/metrics")[1] for worker in (live, files)}
        for worker, own, other in (
            (live, topics.chunks, topics.files),
            (files, topics.files, topics.chunks),
        ):
            assert f'assigned_partitions{{topic="{own}"}} 1.0' in scrapes[worker]
            assert f'topic="{other}"' not in scrapes[worker]
            said = promtool("check", "metrics", stdin=scrapes[worker])
            assert (said.returncode, said.stdout + said.stderr) == (0, "")
            assert exposed(scrapes[worker]) <= set(catalogue())
        assert live.terminate() == files.terminate() == 0, live.log() + files.log()

    sessions = {body(final)["session_id"] for final in consume_all(broker, topics.transcripts)}
    assert sessions == {"call", "mail"}
    assert live.log().startswith("{")  # a line of JSON, as the chart sets it


def both_done(events: list[Any]) -> bool:
    kinds = {str(body(event).get("event")) for event in events}
    return all_ended(1)(events) and "completed" in kinds


def exposed(scrape: str) -> set[str]:
    """The series of a scrape, but for the times at which they began."""
    names = set(re.findall(r"^(\w+)(?:\{|\s)", scrape, re.MULTILINE))
    return {name for name in names if not name.endswith("_created")}
