"""The Dockerfile and the Compose file, held to their rules without a container engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import case, of_kind, pod_spec, render
from tests.support.deploy import DEPLOY, ROOT, dashboard, promtool
from worker.cli import _parser
from worker.settings import Settings, load

VERSION = re.search(
    r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
).group(1)
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = ("worker", "worker-gpu", "worker-ui")
OURS = ("topics", *WORKERS, "transcripts", "player")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with their arguments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, argument) for name, argument in pairs]


def arguments_of(name: str) -> list[str]:
    return [argument for found, argument in instructions() if found == name]


def runtime_stage() -> list[tuple[str, str]]:
    """The stage that both targets stand on; each only adds its libraries."""
    steps = instructions()
    first = steps.index(("FROM", "base AS runtime"))
    return steps[first : steps.index(("FROM", "runtime AS cpu"))]


def test_base_and_torch_come_from_where_the_builder_says():
    assert arguments_of("FROM") == [
        "${BASE_IMAGE} AS base",
        "base AS requirements",
        "base AS builder",
        "builder AS builder-cpu",
        "base AS runtime",
        "runtime AS cpu",
        "builder AS builder-cuda",
        "runtime AS cuda",
    ]
    names = {argument.split("=")[0] for argument in arguments_of("ARG")}
    assert {"BASE_IMAGE", "EXTRAS", "TORCH_INDEX", "VERSION", "REVISION"} <= names


DOCKERFILES = [
    "Dockerfile",
    "tests/containers/prometheus.Dockerfile",
    "tests/docker/kafka.Dockerfile",
]


@pytest.mark.parametrize("path", DOCKERFILES)
def test_the_linter_finds_nothing_in(path):
    hadolint = Path(sys.executable).with_name("hadolint")

    checked = subprocess.run(
        [hadolint, "--no-color", "--config", ".hadolint.yaml", path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_dockerfile_is_linted():
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/*/*Dockerfile")}

    assert found | {"Dockerfile"} == set(DOCKERFILES)


def test_a_classic_builder_can_build_it():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")

    assert "--mount" not in text
    assert "<<" not in text
    assert "--chmod" not in text


def test_the_worker_is_no_root_and_the_user_is_the_chart_s():
    (user,) = [argument for name, argument in runtime_stage() if name == "USER"]
    context = pod_spec(of_kind(render(case("minimal")), "Deployment"))["securityContext"]

    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    steps = [name for name, _ in runtime_stage()]
    assert "RUN" not in steps[steps.index("USER") :]


def test_tini_is_process_one_and_runs_the_worker():
    last = dict(runtime_stage())
    command = json.loads(last["ENTRYPOINT"]) + json.loads(last["CMD"])

    assert command == ["tini", "--", "oasr-worker", "run"]
    _parser().parse_args(command[3:])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_target_adds_its_libraries_to_what_both_have(target):
    steps = instructions()
    first = steps.index(("FROM", f"runtime AS {target}"))

    assert steps[first + 1] == ("COPY", f"--from=builder-{target} /opt/oasr /opt/oasr")
    assert [name for name, _ in steps[first + 2 :]][:1] in ([], ["FROM"])


def test_the_health_check_asks_whether_the_loop_turns():
    check = dict(runtime_stage())["HEALTHCHECK"]
    command = json.loads(check.split("CMD", 1)[1])

    port = Settings.model_fields["http"].default.port
    assert command[:2] == ["oasr-worker", "health"]
    asked = _parser().parse_args(command[1:])
    assert (asked.ready, asked.port) == (False, port)
    assert dict(runtime_stage())["EXPOSE"] == str(port)


def requirements(folder: Path, extras: str | None = None) -> tuple[list[str], list[str]]:
    """What the builder installs: all of it, and torch's part that may have an index of its own."""
    (step,) = [argument for argument in arguments_of("RUN") if "tomllib" in argument]
    (default,) = [
        shlex.split(argument)[0].removeprefix("EXTRAS=")
        for argument in arguments_of("ARG")
        if argument.startswith("EXTRAS=")
    ]
    (folder / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    step = step.replace("python3 -c", f"{shlex.quote(sys.executable)} -c", 1)
    environment = {**os.environ, "EXTRAS": default if extras is None else extras}
    subprocess.run(["/bin/sh", "-ec", step], cwd=folder, env=environment, check=True, timeout=60)
    return (
        (folder / "requirements.txt").read_text().splitlines(),
        (folder / "torch.txt").read_text().splitlines(),
    )


def names_of(lines: list[str]) -> set[str]:
    return {re.split("[<>=]", line)[0] for line in lines}


def test_what_a_setting_may_ask_for_is_in_the_image(tmp_path):
    names = names_of(requirements(tmp_path)[0])

    assert {"silero-vad", "onnxruntime", "opentelemetry-sdk", "boto3"} <= names
    assert "ctranslate2" not in names


def test_extras_are_an_argument_of_the_build(tmp_path):
    none, whisper = (names_of(requirements(tmp_path, extras)[0]) for extras in ("", "vad whisper"))

    assert whisper - none == {"silero-vad", "onnxruntime", "ctranslate2", "tokenizers"}
    with pytest.raises(subprocess.CalledProcessError):
        requirements(tmp_path, "no-such-extra")


def test_requirements_are_read_off_the_project_with_torch_apart(tmp_path):
    everything, torch = requirements(tmp_path)

    assert [re.split("[<>=]", line)[0] for line in torch] == ["torch", "torchaudio"]
    assert any(line.startswith("confluent-kafka>=") for line in everything)
    assert set(torch) <= set(everything)


def test_the_context_holds_what_is_copied_and_nothing_that_is_not():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    allowed = {line.removeprefix("!") for line in rules if line.startswith("!")}
    copied = {
        source
        for argument in arguments_of("COPY")
        if not argument.startswith("--from")
        for source in argument.split()[:-1]
    }

    assert rules[0] == "*"
    assert allowed == copied
    assert all((ROOT / source).exists() for source in copied)
    assert any(fnmatch("worker/__pycache__", rule) for rule in rules[-1:])


def test_tags_are_the_version_of_the_project():
    assert f"VERSION={VERSION}" in arguments_of("ARG")
    for name in OURS:
        assert f":-oasr-worker:{VERSION}" in SERVICES[name]["image"]


def test_each_worker_is_built_for_what_it_runs_on():
    targets = {name: SERVICES[name]["build"]["target"] for name in OURS}

    assert targets.pop("worker-gpu") == "cuda"
    assert set(targets.values()) == {"cpu"}
    names = {argument.split("=")[0] for argument in arguments_of("ARG")}
    assert all(SERVICES[name]["build"]["args"].keys() <= names for name in OURS)


def test_every_image_is_named_by_a_variable_with_a_pinned_default():
    for name, service in SERVICES.items():
        found = re.fullmatch(r"\$\{[A-Z_]+:-[\w./-]+:([\w.-]+)\}", service["image"])
        assert found, name
        assert found.group(1) != "latest"


def test_services_can_be_scaled_and_ports_are_the_machine_s_own():
    assert "version" not in COMPOSE
    for name, service in SERVICES.items():
        assert "container_name" not in service, name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
    assert "ports" not in SERVICES["worker"]


@pytest.mark.parametrize("name", OURS)
def test_our_containers_may_do_as_little_as_in_the_chart(name):
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    _parser().parse_args(service.get("command", ["run"]))


@pytest.mark.parametrize("name", OURS)
def test_the_worker_takes_the_environment_of_every_service(name, monkeypatch):
    for variable, value in SERVICES[name]["environment"].items():
        monkeypatch.setenv(variable, value)

    found = load()

    assert found.kafka.bootstrap_servers == "kafka:19092"
    assert (
        "INTERNAL://kafka:19092" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    )
    assert found.model.device == ("cuda" if name == "worker-gpu" else "cpu")


def test_the_grace_period_is_longer_than_the_drain():
    drain_s = Settings.model_fields["drain_timeout_ms"].default / 1000

    for name in WORKERS:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= drain_s + 15


def test_nobody_starts_before_what_it_needs():
    assert SERVICES["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    for name in set(OURS) - {"topics"}:
        needs = SERVICES[name]["depends_on"]
        assert needs["kafka"] == {"condition": "service_healthy"}
        assert needs["topics"] == {"condition": "service_completed_successfully"}


def test_profiles_add_to_a_plain_start_of_kafka_topics_and_worker():
    plain = {name for name, service in SERVICES.items() if "profiles" not in service}
    profiles = {p for service in SERVICES.values() for p in service.get("profiles", ())}

    assert plain == {"kafka", "topics", "worker"}
    assert profiles == {"demo", "gpu", "observability", "ui"}


def test_the_live_page_is_published_where_it_is_served():
    page = Settings.model_fields["live_page"].default
    environment = SERVICES["worker-ui"]["environment"]
    (port,) = SERVICES["worker-ui"]["ports"]

    assert environment["OASR_LIVE_PAGE__ENABLED"] == "true"
    assert port.endswith(f":{page.port}")
    for name in set(WORKERS) - {"worker-ui"}:
        assert not any("LIVE_PAGE" in variable for variable in SERVICES[name]["environment"])


def test_the_player_finds_the_bundled_calls():
    (link,) = [argument for argument in arguments_of("RUN") if "/opt/oasr/samples" in argument]
    _, folder = SERVICES["player"]["command"]

    assert 'worker.__file__).parent / "assets"' in link
    calls = ROOT / "worker" / "assets" / Path(folder).relative_to("/opt/oasr/samples")
    assert list(calls.glob("*.wav"))


def test_every_mounted_file_is_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).is_file(), volume


def test_prometheus_scrapes_what_the_alerts_are_about_and_loads_them():
    path = DEPLOY / "prometheus" / "prometheus.yaml"
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]

    assert job["job_name"] == "oasr-worker"
    (found,) = job["dns_sd_configs"]
    assert set(found["names"]) == set(WORKERS)
    assert f"{found['port']}" in SERVICES["worker"]["expose"]
    checked = promtool("check", "config", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_grafana_is_provisioned_with_prometheus_and_the_dashboard():
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards.yaml").read_text())["providers"]
    mounts = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]

    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"] is True
    assert f"{provider['options']['path']}/{dashboard()['uid']}.json" in mounts


def test_the_makefile_builds_the_tag_that_compose_starts():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert f"IMAGE ?= oasr-worker:{VERSION}\n" in makefile
