"""The worker's image by itself, as strict as an operator would run it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.support.compose import docker, inspect
from tests.support.kafka import wait_until

IMAGE = os.environ.get("OASR_IMAGE", "")
STRICT = (
    *("--read-only", "--tmpfs", "/tmp", "--network", "none", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges:true"),
)


def in_image(*command: str) -> subprocess.CompletedProcess[str]:
    """One command in a strict container, in the place of the entry point."""
    return subprocess.run(
        ["docker", "run", "--rm", *STRICT, "--entrypoint", command[0], IMAGE, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_the_worker_is_no_root_by_number_and_can_write_to_tmp_only() -> None:
    told = in_image("sh", "-c", "id -u; id -g; touch /tmp/a && echo tmp; touch /opt/oasr/a || true")

    assert told.stdout.split() == ["10001", "10001", "tmp"]
    assert "Read-only file system" in told.stderr
    assert json.loads(docker("image", "inspect", IMAGE))[0]["Config"]["User"] == "10001:10001"


def test_nothing_in_it_can_be_changed_by_the_worker_s_user() -> None:
    search = "find / -xdev -writable ! -type l ! -path '/proc/*' ! -path '/dev/*' ! -path '/sys/*'"
    told = in_image("sh", "-c", f"{search} 2>/dev/null; true")

    assert set(told.stdout.split()) <= {"/tmp", "/var/tmp", "/run/lock"}


@pytest.mark.timeout(300)
def test_the_model_is_in_it_and_works_without_a_network() -> None:
    told = in_image("oasr", "transcribe", "/opt/oasr/samples/recordings/voicemail-00.wav")

    assert told.returncode == 0, told.stderr
    assert len(told.stdout.split()) > 5


@pytest.mark.timeout(300)
def test_the_extras_that_settings_ask_for_are_in_it() -> None:
    extras = "onnxruntime, silero_vad, boto3, opentelemetry.exporter.otlp.proto.http"
    told = in_image("python", "-c", f"import {extras}")

    assert told.returncode == 0, told.stderr


def test_only_what_runs_is_in_it() -> None:
    told = in_image("sh", "-c", "ls /opt/oasr/bin; ls /src /opt/oasr/lib/site-packages/torch")

    assert "oasr-worker" in told.stdout.split()
    assert not {"pip", "include"} & set(told.stdout.split())
    assert "/src" in told.stderr


def test_labels_say_what_it_is() -> None:
    labels = json.loads(docker("image", "inspect", IMAGE))[0]["Config"]["Labels"]

    wanted = {"title", "description", "licenses", "version", "revision", "created", "source"}
    assert labels.keys() >= {f"org.opencontainers.image.{name}" for name in wanted}
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


@pytest.mark.timeout(600)
def test_a_worker_without_a_broker_is_healthy_and_leaves_on_a_signal_with_status_0() -> None:
    quick = ("--health-interval", "2s", "--health-start-period", "1s")
    name = ("--env", "OASR_KAFKA__BOOTSTRAP_SERVERS=localhost:9092")
    container = docker("run", "--detach", *STRICT, *quick, *name, IMAGE).strip()
    try:
        wait_until("the check passes", lambda: health(container) == "healthy", 120)
        wait_until("the model is loaded", lambda: started(container), 240)
        assert docker("exec", container, "cat", "/proc/1/comm").strip() == "tini"
        docker("stop", "--time", "60", container)
        assert inspect([container])[0]["State"]["ExitCode"] == 0
    finally:
        docker("rm", "--force", container)


def health(container: str) -> str:
    """What the engine makes of the image's health check."""
    return str(inspect([container])[0]["State"]["Health"]["Status"])


def started(container: str) -> bool:
    """Whether `/startupz` answers 200; until then a signal ends the worker as any program."""
    ask = "import urllib.request as u; u.urlopen('http://127.0.0.1:9108/startupz')"
    command = ["docker", "exec", container, "python", "-c", ask]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
