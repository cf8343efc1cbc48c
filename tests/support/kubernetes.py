"""One Kubernetes node as its command lines show it: kubectl and helm."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.support.deploy import ROOT
from tests.support.kafka import wait_until

CHART = ROOT / "deploy" / "helm" / "oasr-worker"
NODE = ROOT / "tests" / "kubernetes" / "node" / "node"
TIMEOUT_S = 600.0


def checked(*command: str, given: str = "", timeout_s: float = TIMEOUT_S) -> str:
    """What a command writes to standard output; fails with its errors if its status is not 0."""
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    told = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    assert done.returncode == 0, f"{shlex.join(command)}: {told}"
    return done.stdout


class Namespace:
    """One namespace of the cluster that KUBECONFIG names."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create(self, pod_security: str) -> None:
        """Makes it; the level of Pod Security is enforced on every pod."""
        checked("kubectl", "create", "namespace", self.name)
        label = f"pod-security.kubernetes.io/enforce={pod_security}"
        checked("kubectl", "label", "namespace", self.name, label)

    def delete(self) -> None:
        """Removes it with all that is in it."""
        checked("kubectl", "delete", "namespace", self.name, "--ignore-not-found")

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """One command in the namespace."""
        return checked("kubectl", "--namespace", self.name, *arguments, given=given)

    def helm(self, *arguments: str) -> str:
        """One command in the namespace."""
        return checked("helm", "--namespace", self.name, *arguments)

    def objects(self, kinds: str, selector: str) -> list[dict[str, Any]]:
        """The objects of some kinds that have the labels."""
        found = self.kubectl("get", kinds, "--selector", selector, "--output", "json")
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return items


class Release:
    """The chart, installed under one name."""

    def __init__(self, namespace: Namespace, name: str, values: Path) -> None:
        self.namespace = namespace
        self.name = name
        self._values = ("--values", str(values))
        self._pods = f"app.kubernetes.io/instance={name},app.kubernetes.io/component=worker"

    def install(self) -> str:
        """Returns when all workers are ready."""
        return self._apply("install")

    def test(self) -> str:
        """Runs the chart's own tests, on the cluster."""
        return self.namespace.helm("test", self.name, *_LIMIT)

    def upgrade(self, *values: str) -> str:
        """Returns when all pods run with the values (`key=value`) and are ready."""
        return self._apply("upgrade", *(word for value in values for word in ("--set", value)))

    def rollback(self, revision: int) -> str:
        """Returns when all pods are those of an earlier revision and are ready."""
        return self.namespace.helm("rollback", self.name, str(revision), "--wait", *_LIMIT)

    def uninstall(self) -> str:
        """Returns when all objects of the release are gone; its pods may still be leaving."""
        return self.namespace.helm("uninstall", self.name, "--wait", *_LIMIT)

    def _apply(self, action: str, *values: str) -> str:
        return self.namespace.helm(
            action, self.name, str(CHART), "--wait", *_LIMIT, *self._values, *values
        )

    def pods(self) -> dict[str, dict[str, Any]]:
        """The workers' pods by name, those that are leaving too."""
        return {p["metadata"]["name"]: p for p in self.namespace.objects("pods", self._pods)}

    def ready(self) -> set[str]:
        """Pods that are ready and stay."""
        return {
            name
            for name, pod in self.pods().items()
            if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)
        }

    def await_ready(self, count: int, timeout_s: float = TIMEOUT_S) -> None:
        """Returns when exactly so many workers are there, all of them ready."""
        wait_until(
            f"{count} workers are ready",
            lambda: len(self.ready()) == count == len(self.pods()),
            timeout_s,
        )

    def restarts(self) -> int:
        """How often containers of the workers' pods were started again."""
        states = [s for p in self.pods().values() for s in p["status"]["containerStatuses"]]
        return sum(int(state["restartCount"]) for state in states)

    def setting(self, name: str) -> str:
        """What one of the workers says is the value of a setting."""
        pod = sorted(self.ready())[0]
        shown = self.namespace.kubectl(
            *("exec", pod, "--container", "worker", "--"),
            *("oasr-worker", "check-config", "--config", "/etc/oasr-worker/config.yaml"),
        )
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{name} = ")]
        return line.partition(" = ")[2]

    def left(self) -> list[str]:
        """What the namespace has of the release, helm's own records included."""
        mine = self.namespace.objects(_KINDS, f"app.kubernetes.io/instance={self.name}")
        records = self.namespace.objects("secrets", f"owner=helm,name={self.name}")
        return [f"{one['kind']}/{one['metadata']['name']}" for one in (*mine, *records)]

    def await_gone(self, timeout_s: float = 60.0) -> None:
        """Returns when nothing is left; a pod that has to be killed takes longer than that."""
        wait_until("nothing is left of it", lambda: self.left() == [], timeout_s)

    def own(self) -> set[str]:
        """The objects that helm made, without those that these make and helm's records."""
        mine = self.namespace.objects(_KINDS, f"app.kubernetes.io/instance={self.name}")
        return {
            f"{one['kind']}/{one['metadata']['name']}"
            for one in mine
            if not one["metadata"].get("ownerReferences")
        }


_KINDS = (
    "all,configmaps,secrets,serviceaccounts,persistentvolumeclaims,poddisruptionbudgets,"
    "networkpolicies"
)
_LIMIT = ("--timeout", f"{int(TIMEOUT_S) - 30}s")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def node_address() -> str:
    """Where ports of services are reached from outside of the cluster."""
    nodes = json.loads(checked("kubectl", "get", "nodes", "--output", "json"))["items"]
    addresses = nodes[0]["status"]["addresses"]
    return next(str(one["address"]) for one in addresses if one["type"] == "InternalIP")


def image_of(variable: str) -> tuple[str, str]:
    """Repository and tag of an image that the environment names."""
    repository, _, tag = os.environ[variable].rpartition(":")
    return repository, tag
