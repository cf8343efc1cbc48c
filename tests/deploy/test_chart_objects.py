"""What the chart renders is valid, restricted and consistent, for every case of `ci/`."""

from __future__ import annotations

import json
import re

import kubernetes_validate
import pytest
import yaml
from helm_python.chart import lint

from tests.support.chart import (
    CASES,
    CHART,
    case,
    of_kind,
    overlaid,
    pod_spec,
    pods,
    render,
    render_anew,
    values_of,
)
from tests.support.deploy import ALERTS, alerts, catalogue, dashboard, promtool, series_named

KUBERNETES = ("1.27", "1.32", "1.37")
CUSTOM = {"PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
LONG_NAME = "a" * 53

every_case = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


@every_case
def test_helm_has_no_complaint(path):
    report = lint(CHART, values_of(path), strict=True, quiet=True)

    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@every_case
def test_every_object_is_valid_where_unknown_fields_are_refused(path, version):
    kinds = set()
    for document in render(values_of(path)):
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)
            kinds.add(document["kind"])

    assert {"Deployment", "ConfigMap", "ServiceAccount", "PodDisruptionBudget"} <= kinds


@every_case
def test_names_are_unique_and_fit_also_for_the_longest_release(path):
    for name in ("rel", LONG_NAME):
        named = [(d["kind"], d["metadata"]["name"]) for d in render(values_of(path), name)]

        assert len(set(named)) == len(named)
        assert all(len(name) <= 63 for _, name in named)


@every_case
def test_every_object_says_what_it_belongs_to(path):
    for document in render(values_of(path)):
        if not document["metadata"]["name"].endswith("-extra"):
            labels = document["metadata"]["labels"]
            assert labels["app.kubernetes.io/instance"] == "rel"
            assert all(isinstance(value, str) for value in labels.values())


@every_case
def test_selectors_name_the_workers_of_this_release_and_nothing_else(path):
    documents = render(values_of(path))
    selected = of_kind(documents, "Deployment")["spec"]["selector"]["matchLabels"]
    labels = of_kind(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]

    assert selected.items() <= labels.items()
    assert selected["app.kubernetes.io/instance"] == "rel"
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] in {"PodDisruptionBudget", "PodMonitor"}:
            assert spec["selector"] == {"matchLabels": selected}
        if document["kind"] == "NetworkPolicy":
            assert spec["podSelector"] == {"matchLabels": selected}
        if document["kind"] == "Job":
            job_labels = spec["template"]["metadata"]["labels"]
            assert not selected.items() <= job_labels.items()
    for constraint in pod_spec(of_kind(documents, "Deployment"))["topologySpreadConstraints"]:
        assert constraint["labelSelector"] == {"matchLabels": selected}


@every_case
def test_every_pod_meets_the_restricted_security_level(path):
    for pod in pods(render(values_of(path))):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["privileged"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


@every_case
def test_every_mount_has_its_volume_and_every_volume_its_mount(path):
    for pod in pods(render(values_of(path))):
        volumes = [volume["name"] for volume in pod["volumes"]]
        mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}

        assert len(set(volumes)) == len(volumes)
        assert mounted == set(volumes)


@every_case
def test_every_secret_key_is_one_that_the_values_name(path):
    values = values_of(path)
    security = values["kafka"].get("security", {})
    allowed = {security.get(group, {}).get("existingSecret", "") for group in ("sasl", "tls")} - {
        ""
    }

    for pod in pods(render(values)):
        used = {
            variable["valueFrom"]["secretKeyRef"]["name"]
            for container in pod["containers"]
            for variable in container["env"]
            if "valueFrom" in variable
        } | {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        assert used <= allowed
        assert used == allowed


@every_case
def test_probes_ask_a_port_that_is_there_and_startup_has_fifteen_minutes(path):
    deployment = of_kind(render(values_of(path)), "Deployment")
    (worker,) = pod_spec(deployment)["containers"]
    probes = {name: worker[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}

    assert [port["name"] for port in worker["ports"]] == ["http"]
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startup": {"path": "/startupz", "port": "http"},
        "liveness": {"path": "/livez", "port": "http"},
        "readiness": {"path": "/readyz", "port": "http"},
    }
    patience_s = probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"]
    assert 900 <= patience_s < deployment["spec"]["progressDeadlineSeconds"]


@every_case
def test_a_rollout_never_needs_a_surplus_pod(path):
    strategy = of_kind(render(values_of(path)), "Deployment")["spec"]["strategy"]

    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@every_case
def test_the_autoscaler_and_the_chart_do_not_both_set_replicas(path):
    values = values_of(path)
    documents = render(values)
    scaled = any(document["kind"] == "ScaledObject" for document in documents)

    assert scaled == values.get("keda", {}).get("enabled", False)
    assert ("replicas" in of_kind(documents, "Deployment")["spec"]) != scaled


@every_case
def test_rendering_twice_and_for_an_upgrade_gives_the_same(path):
    values = values_of(path)

    first = render_anew(values, "rel", upgrade=False)

    assert render_anew(values, "rel", upgrade=False) == first
    assert render_anew(values, "rel", upgrade=True) == first


def test_triggers_have_only_strings_and_queries_over_series_that_workers_have(tmp_path):
    scaled = of_kind(render(case("gpu-keda-sasl")), "ScaledObject")["spec"]
    queries = []
    for trigger in scaled["triggers"]:
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        if trigger["type"] == "prometheus":
            queries.append(trigger["metadata"]["query"])
            assert series_named(queries[-1]) <= set(catalogue())
            assert 'namespace="calls", job="oasr-worker"' in queries[-1]

    assert [trigger["type"] for trigger in scaled["triggers"]] == ["prometheus"] * 2 + ["kafka"]
    assert scaled["triggers"][2]["metadata"]["consumerGroup"] == "calls.files"
    rules = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(queries)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "keda", "rules": rules}]}))
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_keda_signs_in_with_the_secrets_of_the_worker():
    documents = render(case("gpu-keda-sasl"))
    own = of_kind(documents, "Secret")
    references = of_kind(documents, "TriggerAuthentication")["spec"]["secretTargetRef"]

    assert own["stringData"] == {"sasl": "scram_sha512", "tls": "enable"}
    assert {r["parameter"]: (r["name"], r["key"]) for r in references} == {
        "sasl": (own["metadata"]["name"], "sasl"),
        "tls": (own["metadata"]["name"], "tls"),
        "username": ("kafka-user", "username"),
        "password": ("kafka-user", "password"),
        "ca": ("kafka-ca", "ca.crt"),
    }


def test_a_gpu_is_asked_for_only_where_it_is_wanted():
    plain = pod_spec(of_kind(render(case("minimal")), "Deployment"))
    with_gpu = pod_spec(of_kind(render(case("gpu-keda-sasl")), "Deployment"))

    assert "nvidia" not in json.dumps(plain)
    assert with_gpu["runtimeClassName"] == "nvidia"
    assert with_gpu["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert with_gpu["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_a_network_policy_always_lets_names_be_resolved():
    egress = of_kind(render(case("topics-netpol-mtls")), "NetworkPolicy")["spec"]["egress"]

    assert {(p["port"], p["protocol"]) for p in egress[0]["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert egress[1] == {"ports": [{"port": 9093, "protocol": "TCP"}]}


def test_the_topics_job_needs_nothing_that_helm_installs_later():
    job = of_kind(render(case("topics-netpol-mtls")), "Job")
    (container,) = pod_spec(job)["containers"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert container["args"] == ["topics", "--create"]
    assert "serviceAccountName" not in pod_spec(job)
    assert not any("configMap" in volume for volume in pod_spec(job)["volumes"])


def test_the_rules_are_those_of_the_file_with_the_limits_of_the_values():
    rendered = of_kind(render(case("everything")), "PrometheusRule")["spec"]["groups"]
    rules = {
        rule["alert"]: rule for group in rendered for rule in group["rules"] if "alert" in rule
    }

    assert set(rules) == {rule["alert"] for rule in alerts()} - {"OasrWorkerPartitionsLost"}
    assert rules["OasrWorkerLiveBehind"]["expr"].endswith('{lane="live"} > 10')
    assert rules["OasrWorkerDeadLetters"]["expr"].endswith("> 0.05")
    assert 'namespace="calls"' in rules["OasrWorkerAbsent"]["expr"]
    assert (
        rules["OasrWorkerAbsent"]["annotations"]["runbook_url"]
        == "https://runbooks.example.com/#oasrworkerabsent"
    )
    untouched = {rule["alert"]: rule for rule in alerts()}["OasrWorkerPartitionStalled"]
    assert rules["OasrWorkerPartitionStalled"]["expr"] == untouched["expr"]


def test_without_values_of_their_own_the_rules_are_the_file(tmp_path):
    values = overlaid(case("minimal"), {"metrics": {"prometheusRule": {"enabled": True}}})
    spec = of_kind(render(values), "PrometheusRule")["spec"]
    expected = ALERTS.read_text(encoding="utf-8").replace(
        'up{job="oasr-worker"}', 'up{job="oasr-worker", namespace="calls"}'
    )

    assert spec == yaml.safe_load(expected)
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    checked = promtool("check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_dashboard_arrives_as_it_is():
    (text,) = [
        document["data"]["oasr-worker.json"]
        for document in render(case("everything"))
        if "oasr-worker.json" in document.get("data", {})
    ]

    assert json.loads(text) == dashboard()


def test_the_job_label_is_the_one_that_alerts_and_triggers_expect():
    monitor = of_kind(render(case("everything")), "PodMonitor")["spec"]["podMetricsEndpoints"][0]

    assert monitor["relabelings"][0] == {"targetLabel": "job", "replacement": "oasr-worker"}
    assert re.search(r'job="oasr-worker"', ALERTS.read_text(encoding="utf-8"))


def test_images_are_named_by_digest_or_tag_and_registry():
    def image(values):
        return pod_spec(of_kind(render(values), "Deployment"))["containers"][0]["image"]

    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert image(case("minimal")) == f"oasr-worker:{version}"
    assert image(case("gpu-keda-sasl")) == "registry.example.com/oasr-worker:0.1.0-cuda"
    assert image(case("everything")).startswith("mirror.example.com/oasr-worker@sha256:0123")


def test_the_restart_on_changed_secrets_names_them():
    annotations = of_kind(render(case("gpu-keda-sasl")), "Deployment")["metadata"]["annotations"]

    assert annotations == {"secret.reloader.stakater.com/reload": "kafka-user,kafka-ca"}
