"""What the chart renders is valid, restricted and consistent, for every case of `ci/`."""

from __future__ import annotations

import json
import re

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
    settings_file,
    validate,
    values_of,
    workload,
)
from tests.support.deploy import ALERTS, alerts, catalogue, dashboard, promtool, series_named
from worker.cli import _parser
from worker.settings import Settings, load
from worker.topics import topic_specs

KUBERNETES = ("1.27", "1.32", "1.37")
CUSTOM = {"KafkaTopic", "PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
NEEDS_NEWER = {"image-volume": "1.32"}  # than the chart's other cases
LONG_NAME = "a" * 53
KNOWN_TO_KEDA = {
    "prometheus": {"serverAddress", "query", "threshold"},
    "kafka": {
        *("bootstrapServers", "consumerGroup", "topic", "lagThreshold", "activationLagThreshold"),
        *("offsetResetPolicy", "allowIdleConsumers", "limitToPartitionsWithLag", "version"),
        "ensureEvenDistributionOfPartitions",
    },
}

every_case = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


@every_case
def test_helm_has_no_complaint(path):
    report = lint(CHART, values_of(path), strict=True, quiet=True)

    assert report["errors"] == []
    assert [m for m in report["messages"] if m["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@every_case
def test_every_object_is_valid_where_unknown_fields_are_refused(path, version):
    documents = render(values_of(path))
    known = [document for document in documents if document["kind"] not in CUSTOM]
    for document in known:
        if version >= NEEDS_NEWER.get(path.stem, "") or document["kind"] != "Deployment":
            validate(document, version)

    kinds = {document["kind"] for document in known}
    assert {"ConfigMap", "ServiceAccount", "PodDisruptionBudget", "Pod"} <= kinds
    assert workload(documents)


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
    selected = workload(documents)["spec"]["selector"]["matchLabels"]
    labels = workload(documents)["spec"]["template"]["metadata"]["labels"]

    assert selected.items() <= labels.items()
    assert selected["app.kubernetes.io/instance"] == "rel"
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] in {"PodDisruptionBudget", "PodMonitor"}:
            assert spec["selector"] == {"matchLabels": selected}
        if document["kind"] == "NetworkPolicy":
            assert spec["podSelector"] == {"matchLabels": selected}
        if document["kind"] == "Service":
            assert spec["selector"] == selected
        if document["kind"] in {"Job", "Pod"}:
            others = spec.get("template", document)["metadata"]["labels"]
            assert not selected.items() <= others.items()
    for constraint in pod_spec(workload(documents))["topologySpreadConstraints"]:
        assert constraint["labelSelector"] == {"matchLabels": selected}


@every_case
def test_every_pod_meets_the_restricted_security_level(path):
    for pod in pods(render(values_of(path))):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["privileged"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}


@every_case
def test_every_mount_has_its_volume_and_every_volume_its_mount(path):
    for pod in pods(render(values_of(path))):
        volumes = [volume["name"] for volume in pod["volumes"]]
        containers = [*pod.get("initContainers", ()), *pod["containers"]]
        mounted = {m["name"] for c in containers for m in c["volumeMounts"]}

        assert len(set(volumes)) == len(volumes)
        assert mounted == set(volumes)


@every_case
def test_every_secret_key_is_one_that_the_values_name(path):
    values = values_of(path)
    security = values["kafka"].get("security", {})
    allowed = {security.get(group, {}).get("existingSecret", "") for group in ("sasl", "tls")}
    allowed.add(values.get("model", {}).get("hub", {}).get("tokenSecret", ""))
    allowed.discard("")
    of_the_model = {values.get("model", {}).get("hub", {}).get("tokenSecret", "")} - {""}

    for pod in pods(render(values)):
        used = {
            variable["valueFrom"]["secretKeyRef"]["name"]
            for container in pod["containers"]
            for variable in container["env"]
            if "secretKeyRef" in variable.get("valueFrom", {})
        } | {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        assert used <= allowed
        assert used >= allowed - of_the_model


@every_case
def test_probes_ask_a_port_that_is_there_and_startup_has_fifteen_minutes(path):
    deployment = workload(render(values_of(path)))
    (worker,) = pod_spec(deployment)["containers"]
    probes = {name: worker[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}

    assert [port["name"] for port in worker["ports"]] == ["http"]
    assert {name: probe["httpGet"] for name, probe in probes.items()} == {
        "startup": {"path": "/startupz", "port": "http"},
        "liveness": {"path": "/livez", "port": "http"},
        "readiness": {"path": "/readyz", "port": "http"},
    }
    patience_s = probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"]
    assert patience_s >= 900
    if deployment["kind"] == "Deployment":
        assert patience_s < deployment["spec"]["progressDeadlineSeconds"]


@every_case
def test_a_rollout_never_needs_a_surplus_pod(path):
    found = workload(render(values_of(path)))

    if found["kind"] == "StatefulSet":  # which ends a pod before it starts the next of its name
        assert found["spec"]["updateStrategy"] == {"type": "RollingUpdate"}
        assert "strategy" not in found["spec"]
    else:
        strategy = found["spec"]["strategy"]
        assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@every_case
def test_the_autoscaler_and_the_chart_do_not_both_set_replicas(path):
    values = values_of(path)
    documents = render(values)
    scalers = {"ScaledObject", "HorizontalPodAutoscaler"}
    scaled = any(document["kind"] in scalers for document in documents)

    assert scaled == any(values.get(name, {}).get("enabled") for name in ("keda", "hpa"))
    assert ("replicas" in workload(documents)["spec"]) != scaled


@every_case
def test_rendering_twice_and_for_an_upgrade_gives_the_same(path):
    values = values_of(path)

    first = render_anew(values, "rel", upgrade=False)

    assert render_anew(values, "rel", upgrade=False) == first
    assert render_anew(values, "rel", upgrade=True) == first


@every_case
def test_triggers_have_only_strings_under_names_that_keda_knows(path):
    for document in render(values_of(path)):
        if document["kind"] == "ScaledObject":
            for trigger in document["spec"]["triggers"]:
                assert set(trigger["metadata"]) <= KNOWN_TO_KEDA[trigger["type"]]
                assert all(isinstance(value, str) for value in trigger["metadata"].values())


def test_triggers_query_series_that_workers_have(tmp_path):
    scaled = of_kind(render(case("gpu-keda-sasl")), "ScaledObject")["spec"]
    queries = []
    for trigger in scaled["triggers"]:
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


def test_two_releases_of_a_namespace_do_not_take_each_other_s_workers():
    live, files = (workload(render(case(f"lane-{lane}"), lane)) for lane in ("live", "files"))

    for one, other in ((live, files), (files, live)):
        selected = one["spec"]["selector"]["matchLabels"]
        assert not selected.items() <= other["spec"]["template"]["metadata"]["labels"].items()


def test_each_lane_is_scaled_by_its_own_signal():
    live, files = (
        of_kind(render(case(f"lane-{lane}")), "ScaledObject")["spec"] for lane in ("live", "files")
    )

    assert {trigger["type"] for trigger in live["triggers"]} == {"prometheus"}
    assert live["triggers"][0]["authenticationRef"]["kind"] == "ClusterTriggerAuthentication"
    (lag,) = files["triggers"]
    assert (lag["type"], lag["metadata"]["consumerGroup"]) == ("kafka", "calls.files")
    assert lag["authenticationRef"] == {"name": "kafka", "kind": "ClusterTriggerAuthentication"}
    assert (files["minReplicaCount"], lag["metadata"]["activationLagThreshold"]) == (0, "12")


def test_static_members_are_named_after_pods_whose_names_stay():
    documents = render(case("statefulset-static"))
    members = workload(documents)
    (worker,) = pod_spec(members)["containers"]
    (name,) = [v for v in worker["env"] if v["name"] == "OASR_KAFKA__GROUP_INSTANCE_ID"]
    service = of_kind(documents, "Service")

    assert members["kind"] == "StatefulSet"
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert members["spec"]["podManagementPolicy"] == "Parallel"
    assert members["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("gpu-keda-sasl", {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}),
        (
            "lane-files",
            {"persistentVolumeClaim": {"claimName": "rel-oasr-worker-model", "readOnly": True}},
        ),
        (
            "image-volume",
            {
                "image": {
                    "reference": "registry.example.com/conformer:1",
                    "pullPolicy": "IfNotPresent",
                }
            },
        ),
    ],
)
def test_a_model_is_mounted_read_only_where_the_worker_looks_for_it(name, source):
    documents = render(case(name))
    pod = pod_spec(workload(documents))
    (volume,) = [v for v in pod["volumes"] if v["name"] == "model"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "model"]

    assert volume == {"name": "model", **source}
    assert mount["readOnly"] is True
    assert yaml.safe_load(settings_file(documents))["model"]["dir"] == mount["mountPath"]


def test_a_model_of_a_hub_is_fetched_before_the_worker_starts_and_read_only_to_it():
    documents = render(case("hub-model"))
    pod = pod_spec(workload(documents))
    (fetcher,), (worker,) = pod["initContainers"], pod["containers"]
    options = _parser().parse_args(fetcher["args"])
    mounts = [{m["name"]: m for m in c["volumeMounts"]} for c in (fetcher, worker)]
    model_dir = yaml.safe_load(settings_file(documents))["model"]["dir"]

    assert (options.repository, options.revision) == ("acme/conformer", "0123abcd")
    assert options.endpoint == "https://hub.example.com"
    assert fetcher["image"] == worker["image"]
    assert str(options.to) == mounts[0]["model"]["mountPath"] == model_dir
    assert mounts[1]["model"] == {**mounts[0]["model"], "readOnly": True}
    assert str(options.token_file).startswith(mounts[0]["hub-token"]["mountPath"])
    assert "hub-token" not in mounts[1]
    ports = [
        p["port"]
        for rule in of_kind(documents, "NetworkPolicy")["spec"]["egress"]
        for p in rule["ports"]
    ]
    assert 443 in ports


def test_topics_are_strimzi_s_as_the_worker_would_create_them():
    documents = render(case("statefulset-static"))
    made = {d["spec"]["topicName"]: d for d in documents if d["kind"] == "KafkaTopic"}
    settings = Settings(**yaml.safe_load(settings_file(documents)))

    for spec in topic_specs(settings):
        topic = made.pop(spec.name)
        config = {key: str(value) for key, value in topic["spec"].get("config", {}).items()}
        if spec.name == settings.topics.chunks:
            assert config.pop("retention.ms") == "3600000"
        assert config == spec.config
        assert (topic["spec"]["partitions"], topic["spec"]["replicas"]) == (12, 3)
        assert topic["metadata"]["labels"]["strimzi.io/cluster"] == "calls"
        assert topic["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert made == {}


@every_case
def test_what_an_upgrade_cannot_change_depends_on_the_names_alone(path):
    values = values_of(path)
    before = workload(render(values))
    after = workload(
        render(
            overlaid(values, {"podLabels": {"tier": "new"}, "commonLabels": {"team": "new"}}),
            upgrade=True,
        )
    )

    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["spec"].get("serviceName") == before["spec"].get("serviceName")


@every_case
def test_the_grace_period_is_longer_than_the_drain(path):
    documents = render(values_of(path))
    drain_ms = yaml.safe_load(settings_file(documents))["drain_timeout_ms"]

    grace_s = pod_spec(workload(documents))["terminationGracePeriodSeconds"]
    assert grace_s * 1000 >= drain_ms + 15_000


@every_case
def test_libraries_keep_their_caches_where_the_container_may_write(path):
    pod = pod_spec(workload(render(values_of(path))))
    worker = pod["containers"][0]
    writable = [m["mountPath"] for m in worker["volumeMounts"] if not m.get("readOnly")]
    homes = {
        v["name"]: v["value"] for v in worker["env"] if v["name"].endswith(("HOME", "DIR", "PATH"))
    }

    assert {"HOME", "XDG_CACHE_HOME", "CUDA_CACHE_PATH", "TRITON_CACHE_DIR"} <= set(homes)
    assert all(home.split("/")[1] == "tmp" for home in homes.values())
    assert "/tmp" in writable


FETCHED = {"https_hosts": ["recordings.example.com"]}


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({}, "1Gi"),
        ({"config": {"files": FETCHED}}, "3072Mi"),
        ({"config": {"files": {"s3_buckets": ["calls"], "workers": 3}}}, "4096Mi"),
        ({"config": {"files": {**FETCHED, "max_bytes": 5_000_000_001}}}, "10561Mi"),
        ({"config": {"files": FETCHED}, "lanes": "live"}, "1Gi"),
        ({"config": {"files": {**FETCHED, "temp_dir": "/scratch"}}}, "1Gi"),
        ({"config": {"files": {**FETCHED, "temp_dir": "/tmp/fetched"}}}, "3072Mi"),
        ({"config": {"files": FETCHED}, "tmpSizeLimit": "7Gi"}, "7Gi"),
    ],
)
def test_tmp_has_room_for_the_files_that_are_fetched_at_once(values, size):
    pod = pod_spec(workload(render(overlaid(case("minimal"), values))))

    (tmp,) = [volume for volume in pod["volumes"] if volume["name"] == "tmp"]
    assert tmp["emptyDir"] == {"sizeLimit": size}


def test_the_room_in_tmp_is_computed_with_the_worker_s_own_defaults():
    template = (CHART / "templates" / "_pod.tpl").read_text(encoding="utf-8")
    files = Settings.model_fields["files"].default

    assert f"default {files.workers} $files.workers" in template
    assert f"default {files.max_bytes} $files.max_bytes" in template


def test_the_topics_job_takes_every_setting_of_its_groups_as_the_worker_writes_it(monkeypatch):
    values = {"topics": {"mode": "job"}, "kafka": {"maxPollIntervalMs": 3_600_000}}
    (container,) = pod_spec(of_kind(render(overlaid(case("minimal"), values)), "Job"))["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])

    assert load().kafka.max_poll_interval_ms == 3_600_000


def test_helm_test_asks_the_brokers_with_the_worker_s_own_settings():
    documents = render(case("gpu-keda-sasl"))
    asker = of_kind(documents, "Pod")
    (container,) = asker["spec"]["containers"]
    (worker, *_) = pod_spec(workload(documents))["containers"]

    assert asker["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert container["args"] == ["topics", *worker["args"][1:3]]
    secret = [v for v in worker["env"] if "SASL" in v["name"]]
    assert [v for v in container["env"] if "SASL" in v["name"]] == secret != []


def test_a_value_of_null_takes_the_default_away_and_the_rest_still_renders():
    for values in (
        {"metrics": {"dashboard": {"labels": None}}},
        {"gpu": {"tolerations": None}},
        {"shutdown": {"preStop": None}},
        {"nodeSelector": None},
        {"extraObjects": None},
    ):
        assert workload(render(overlaid(case("everything"), values)))
