"""Values: documented, checked, guarded, and turned into settings that the worker takes."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
import yaml
from helm_python.chart import lint
from helm_python.errors import HelmError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chart import (
    CASES,
    CHART,
    case,
    of_kind,
    overlaid,
    pod_spec,
    render,
    settings_file,
    values_of,
    workload,
)
from tests.support.deploy import ROOT
from worker.settings import Settings, load
from worker.settings_kafka import PROTECTED

README = CHART / "README.md"
VALUES_TEXT = (CHART / "values.yaml").read_text(encoding="utf-8")
VALUES = yaml.safe_load(VALUES_TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

every_case = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def effective(values: dict[str, Any], tmp_path, monkeypatch) -> Settings:
    """The worker's settings, from nothing but the rendered file and environment."""
    documents = render(values)
    path = tmp_path / "config.yaml"
    path.write_text(settings_file(documents), encoding="utf-8")
    adopt_environment(workload(documents), monkeypatch)
    return load(path)


def adopt_environment(workload: dict[str, Any], monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("OASR_")]:
        monkeypatch.delenv(name)
    for variable in pod_spec(workload)["containers"][0]["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "from-a-secret"))


@every_case
def test_the_worker_starts_with_the_rendered_file_and_environment(path, tmp_path, monkeypatch):
    values = values_of(path)
    found = effective(values, tmp_path, monkeypatch)

    assert found.kafka.bootstrap_servers == values["kafka"]["bootstrapServers"]
    assert found.log.format == "json"
    assert found.lanes == values.get("lanes", "both")
    assert found.drain_timeout_ms == 240_000
    if values["kafka"].get("security", {}).get("sasl"):
        assert found.kafka.sasl_username == "from-a-secret"
        assert found.kafka.sasl_password.get_secret_value() == "from-a-secret"


def test_every_value_of_the_worker_arrives(tmp_path, monkeypatch):
    found = effective(case("everything"), tmp_path, monkeypatch)

    assert found.topics.chunks == "a.chunks"
    assert found.topics.dead_letters == "a.dead"
    assert found.files_group == "recordings"
    assert found.kafka.session_timeout_ms == 30_000
    assert found.kafka.sasl_mechanism == "PLAIN"
    assert found.kafka.consumer == {"fetch.max.bytes": 8_388_608}
    assert [str(root) for root in found.files.roots] == ["/recordings"]
    assert found.endpointing.min_silence_ms == 600
    assert found.audio.sample_rate == 8_000


def test_a_static_member_has_the_time_of_a_restart(tmp_path, monkeypatch):
    found = effective(case("statefulset-static"), tmp_path, monkeypatch).kafka

    assert found.group_instance_id == "from-a-secret"  # which stands for the pod's name here
    assert found.session_timeout_ms == found.max_poll_interval_ms == 300_000


def test_client_certificates_are_files_below_the_mount(tmp_path, monkeypatch):
    values = case("topics-netpol-mtls")
    kafka = effective(values, tmp_path, monkeypatch).kafka
    deployment = workload(render(values))
    (volume,) = [v for v in pod_spec(deployment)["volumes"] if v["name"] == "tls"]
    mounted = {f"/etc/oasr-worker/tls/{item['path']}" for item in volume["secret"]["items"]}

    assert kafka.ssl_key_password.get_secret_value() == "from-a-secret"
    assert mounted == {
        str(kafka.ssl_ca_location),
        str(kafka.ssl_certificate_location),
        str(kafka.ssl_key_location),
    }


@pytest.mark.parametrize("name", ["topics-netpol-mtls", "everything"])
def test_the_topics_job_has_the_same_brokers_and_topics_as_the_worker(name, tmp_path, monkeypatch):
    values = case(name)
    worker = effective(values, tmp_path, monkeypatch)
    adopt_environment(of_kind(render(values), "Job"), monkeypatch)

    job = load()

    assert job.kafka == worker.kafka
    assert job.topics == worker.topics


def test_pods_are_replaced_when_the_settings_change_and_only_then():
    def checksum(*layers: dict[str, Any]) -> str:
        deployment = of_kind(render(overlaid(case("minimal"), *layers)), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum({"config": {"files": {"workers": 3}}}) != checksum()
    assert checksum({"kafka": {"topics": {"chunks": "other"}}}) != checksum()
    assert checksum({"replicas": 5, "podLabels": {"a": "b"}}) == checksum()


@every_case
def test_no_password_is_in_the_settings_file(path):
    assert not re.search("password|username", settings_file(render(values_of(path))))


TWO = {"replicas": 2}
GUARDS = [
    ({"kafka": {"bootstrapServers": ""}}, "kafka.bootstrapServers is required"),
    (
        {"shutdown": {"drainTimeoutSeconds": 290}},
        "terminationGracePeriodSeconds must be at least shutdown.drainTimeoutSeconds + 15",
    ),
    ({"kafka": {"security": {"protocol": "SASL_SSL"}}}, "needs kafka.security.sasl.mechanism"),
    ({"kafka": {"security": {"sasl": {"mechanism": "PLAIN"}}}}, "needs kafka.security.protocol"),
    (
        {"kafka": {"security": {"protocol": "SASL_SSL", "sasl": {"mechanism": "PLAIN"}}}},
        "needs kafka.security.sasl.existingSecret",
    ),
    (
        {"kafka": {"security": {"tls": {"existingSecret": "x"}}}},
        "needs kafka.security.protocol SSL or SASL_SSL",
    ),
    (
        {"kafka": {"security": {"protocol": "SSL", "tls": {"certKey": "tls.crt"}}}},
        "certKey and keyKey go together",
    ),
    (
        {"kafka": {"security": {"protocol": "SSL", "tls": {"certKey": "c", "keyKey": "k"}}}},
        "certKey needs kafka.security.tls.existingSecret",
    ),
    (
        {"kafka": {"groupProtocol": "consumer", "sessionTimeoutMs": 30000}},
        "sessionTimeoutMs is the broker's",
    ),
    ({"model": {"volume": {"emptyDir": {}}}}, "model.volume and model.source custom go together"),
    ({"model": {"source": "custom"}}, "model.volume and model.source custom go together"),
    ({"model": {"source": "pvc"}}, "model.source pvc needs model.pvc.existingClaim"),
    (
        {"model": {"source": "pvc", "pvc": {"create": True, "accessMode": "ReadWriteOnce"}}, **TWO},
        "ReadWriteOnce cannot be mounted by workers on several nodes",
    ),
    ({"model": {"source": "hub"}}, "model.source hub needs model.hub.repository"),
    ({"model": {"source": "imageVolume"}}, "imageVolume needs model.imageVolume.reference"),
    (
        {"kafka": {"consumer": {"partition.assignment.strategy": "range"}}},
        "no kafka.client, consumer or producer property may be partition.assignment.strategy",
    ),
    (
        {"kafka": {"client": {"heartbeat.interval.ms": 5}}},
        "no kafka.client, consumer or producer property may be heartbeat.interval.ms",
    ),
    (
        {"kafka": {"staticMembership": {"enabled": True}}},
        "kafka.staticMembership needs workload.kind StatefulSet",
    ),
    (
        {
            "kafka": {"staticMembership": {"enabled": True}},
            "workload": {"kind": "StatefulSet"},
            "hpa": {"enabled": True},
        },
        "a worker that is scaled in keeps its partitions",
    ),
    ({"topics": {"mode": "strimzi"}}, "topics.mode strimzi needs topics.strimzi.cluster"),
    ({"hpa": {"enabled": True, "minReplicas": 9}}, "hpa.maxReplicas must not be below"),
    (
        {"hpa": {"enabled": True}, "keda": {"enabled": True}},
        "exclude each other: KEDA makes an HPA",
    ),
    (
        {"keda": {"enabled": True, "files": {"enabled": False}}, "lanes": "files"},
        "keda.enabled has no trigger",
    ),
    ({"pdb": {"minAvailable": 1}}, "exclude each other"),
    ({"pdb": {"maxUnavailable": None}}, "pdb needs minAvailable or maxUnavailable"),
    (
        {"config": {"kafka": {"group_instance_id": "a"}}},
        "config.kafka is set by the chart's own values: use kafka",
    ),
    ({"config": {"http": {"port": 1}}}, "config.http.port is set by the chart's own values"),
    (
        {"config": {"drain_timeout_ms": 5}},
        "config.drain_timeout_ms is set by the chart's own values",
    ),
    ({"config": {"files": {"s3_secret": "x"}}}, "would be readable in a ConfigMap"),
    ({"keda": {"enabled": True}}, "needs keda.prometheus.serverAddress"),
    (
        {"metrics": {"prometheusRule": {"disabled": ["Nope"]}}},
        "metrics.prometheusRule: there is no alert Nope",
    ),
    (
        {"metrics": {"prometheusRule": {"enabled": True, "thresholds": {"OasrWorkerAbsent": 1}}}},
        "OasrWorkerAbsent has no limit to set",
    ),
]
KEDA_GUARDS = [
    ({"minReplicas": 5, "maxReplicas": 4}, "must not be below keda.minReplicas"),
    ({"minReplicas": 0}, "keda.minReplicas 0 needs lanes files"),
    ({"maxReplicas": 13}, "above kafka.partitions gives workers without work"),
    (
        {"files": {"allowIdleConsumers": True, "limitToPartitionsWithLag": True}},
        "KEDA refuses keda.files.allowIdleConsumers",
    ),
    (
        {"files": {"limitToPartitionsWithLag": True, "ensureEvenDistributionOfPartitions": True}},
        "KEDA refuses keda.files.limitToPartitionsWithLag",
    ),
]


@pytest.mark.parametrize(("values", "message"), GUARDS)
def test_values_that_contradict_each_other_are_refused_with_a_reason(values, message):
    with pytest.raises(HelmError, match=re.escape(message)):
        render(overlaid(case("minimal"), values))


@pytest.mark.parametrize(("keda", "message"), KEDA_GUARDS)
def test_scaling_that_cannot_work_is_refused_with_a_reason(keda, message):
    on = {"keda": {"enabled": True, "prometheus": {"serverAddress": "http://p"}}}
    render(overlaid(case("minimal"), on))

    with pytest.raises(HelmError, match=re.escape(message)):
        render(overlaid(case("minimal"), on, {"keda": keda}))


def test_keda_cannot_read_a_group_that_may_not_begin_anywhere():
    values = overlaid(case("gpu-keda-sasl"), {"kafka": {"autoOffsetReset": "error"}})

    with pytest.raises(HelmError, match=r"knows no kafka\.autoOffsetReset error"):
        render(values)
    render(overlaid(values, {"keda": {"files": {"enabled": False}}}))


def test_every_guard_is_tested():
    source = (CHART / "templates" / "validate.yaml").read_text(encoding="utf-8")
    guards = re.findall(r'fail (?:\(printf )?"([^"]+)"', source)
    tested = [message for _, message in (*GUARDS, *KEDA_GUARDS)]
    tested.append("knows no kafka.autoOffsetReset error")  # by the test above
    tested.append("model.source imageVolume needs Kubernetes 1.33")  # by the one below

    assert len(guards) == source.count("{{- fail ")
    for guard in guards:
        # the longest part without a name in it
        said = max(guard.split("%s"), key=len).strip()
        assert any(message in said or said in message for message in tested), guard


def test_an_image_volume_is_refused_where_the_cluster_is_too_old(capfd):
    def refusals(kubernetes: str) -> int:
        lint(CHART, case("image-volume"), kube_version=kubernetes)  # which logs what `fail` says
        return capfd.readouterr().err.count("model.source imageVolume needs Kubernetes 1.33")

    assert refusals("1.32.9") == 1
    assert refusals("1.33.0") == 0


def test_the_chart_protects_the_properties_that_the_worker_does():
    helpers = (CHART / "templates" / "_settings.tpl").read_text(encoding="utf-8")
    (names,) = re.findall(r'define "oasr-worker.protected" -}}\s*(\[.+?\])', helpers, re.DOTALL)

    assert json.loads(names) == sorted(PROTECTED)


@pytest.mark.parametrize(
    "values",
    [
        {"replica": 2},
        {"kafka": {"topic": "x"}},
        {"kafka": {"topics": {"chunks": "no spaces"}}},
        {"kafka": {"client": {"sasl.password": "x"}}},
        {"image": {"digest": "sha256:short"}},
        {"keda": {"minReplicas": -1}},
        {"keda": {"files": {"excludePersistentLag": True}}},
        {"lanes": "all"},
        {"workload": {"kind": "DaemonSet"}},
        {"topics": {"strimzi": {"config": {"chunk": {}}}}},
        {"kafka": {"topics": {"files": ""}}},
        {"http": {"port": 70000}},
        {"topics": {"replicationFactor": 0}},
    ],
)
def test_the_schema_refuses_what_is_misspelled_or_impossible(values):
    with pytest.raises(HelmError, match="schema"):
        render(overlaid(case("minimal"), values))


def test_a_parent_chart_may_pass_its_globals_and_condition():
    render(overlaid(case("minimal"), {"global": {"other": {"a": 1}}, "enabled": True}))


def closed_paths(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted names of all values that the schema closes; open maps and lists count as one."""
    paths = set()
    for name, below in schema["properties"].items():
        path = f"{prefix}{name}"
        inner = closed_paths(below, f"{path}.") if "properties" in below else {path}
        paths |= inner
    return paths


def has_default(path: str) -> bool:
    at: Any = VALUES
    for name in path.split("."):
        if not isinstance(at, dict) or name not in at:
            return False
        at = at[name]
    return True


def test_schema_defaults_and_documentation_name_the_same_values():
    paths = closed_paths(SCHEMA) - {"enabled"}
    documented = set(
        re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text("utf-8"), re.MULTILINE)
    )

    assert [path for path in sorted(paths) if not has_default(path)] == []
    for path in paths:
        parents = {path, path.rsplit(".", 1)[0]}
        assert parents & documented, path
    assert all(has_default(path) for path in documented)


def test_the_readme_says_of_each_value_what_stands_beside_it():
    commented = re.findall(r"^ *# -- (.+)\n *(\w+):", VALUES_TEXT, re.MULTILINE)
    rows = re.findall(
        r"^\| `[\w.]*?(\w+)` \| (.+?) \| (.+) \|$", README.read_text("utf-8"), re.MULTILINE
    )

    assert [(name, meaning) for name, _, meaning in rows] == [
        (name, said) for said, name in commented
    ]
    names = re.findall(r"^\| `([\w.]+)` \| `(.+?)` \|", README.read_text("utf-8"), re.MULTILINE)
    for path, shown in names:
        at: Any = VALUES
        for name in path.split("."):
            at = at[name]
        assert json.loads(shown) == at, path


def test_the_chart_is_of_the_version_of_the_worker():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert version is not None
    assert metadata["appVersion"] == version.group(1)


texts = st.text("abz019.-", min_size=1, max_size=12)


@settings(deadline=None, max_examples=10)
@given(
    group=texts,
    port=st.integers(1, 65_535),
    poll_ms=st.integers(45_000, 2**31),
    silence_ms=st.integers(100, 4_000),
    rack=texts,
)
def test_any_value_arrives_in_the_settings_as_it_was_given(group, port, poll_ms, silence_ms, rack):
    text = settings_file(
        render(
            {
                "kafka": {
                    "bootstrapServers": f"{group}:{port}",
                    "groupId": group,
                    "maxPollIntervalMs": poll_ms,
                    "client": {"client.rack": rack},
                },
                "http": {"port": port},
                "config": {"endpointing": {"min_silence_ms": silence_ms}},
            }
        )
    )

    found = Settings(**yaml.safe_load(text))

    assert found.kafka.group == group
    assert found.kafka.max_poll_interval_ms == poll_ms
    assert found.kafka.client == {"client.rack": rack}
    assert found.http.port == port
    assert found.endpointing.min_silence_ms == silence_ms
