"""The chart rendered by Helm's own engine, without a cluster."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from helm_python import Chart
from kubernetes_validate import utils

from tests.support.deploy import DEPLOY

CHART = DEPLOY / "helm" / "oasr-worker"
CASES = sorted((CHART / "ci").glob("*.yaml"))

Document = dict[str, Any]


@cache
def chart() -> Chart:
    """The chart; it cannot be changed, so one does for all tests."""
    return Chart.load(CHART)


def values_of(path: Path) -> dict[str, Any]:
    """The values of a case."""
    values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return values


def case(name: str) -> dict[str, Any]:
    """The values of the case that `ci/` has under this name."""
    return values_of(CHART / "ci" / f"{name}.yaml")


def overlaid(values: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    """Values with others over them, as several `-f` would do."""
    result = copy.deepcopy(values)
    for layer in more:
        for name, value in layer.items():
            below = result.get(name)
            merge = isinstance(below, dict) and isinstance(value, dict)
            result[name] = overlaid(below, value) if merge else copy.deepcopy(value)
    return result


def render(values: dict[str, Any], name: str = "rel", upgrade: bool = False) -> list[Document]:
    """All objects of a release, in namespace `calls`."""
    return copy.deepcopy(_rendered(json.dumps(values), name, upgrade))


@cache
def _rendered(values: str, name: str, upgrade: bool) -> list[Document]:
    return render_anew(json.loads(values), name, upgrade)


def render_anew(values: dict[str, Any], name: str, upgrade: bool) -> list[Document]:
    """The same as `render`, by the engine whether it was asked before or not."""
    files = chart().render(values, name=name, namespace="calls", is_upgrade=upgrade)
    return [
        document
        for path, text in sorted(files.items())
        if path.endswith(".yaml")
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
        if document
    ]


def validate(document: Document, version: str) -> None:
    """ValidationError for an object that this version of Kubernetes does not take as it is."""
    with patch.object(utils, "schema_contents", _schema_contents):
        utils.validate(document, version, strict=True)


_schema_contents = cache(utils.schema_contents)  # megabytes that it would read for every object


def of_kind(documents: list[Document], kind: str) -> Document:
    """The only object of a kind; ValueError if there is none or more."""
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def settings_file(documents: list[Document]) -> str:
    """The file that the worker is started with."""
    (text,) = [d["data"]["config.yaml"] for d in documents if "config.yaml" in d.get("data", {})]
    return str(text)


def workload(documents: list[Document]) -> Document:
    """The Deployment or StatefulSet of the workers."""
    (found,) = [d for d in documents if d["kind"] in {"Deployment", "StatefulSet"}]
    return found


def pod_spec(document: Document) -> Document:
    """The pod of a workload or Job."""
    spec: Document = document["spec"]["template"]["spec"]
    return spec


def pods(documents: list[Document]) -> list[Document]:
    """All pods: of the workload, of the topics job and of `helm test`."""
    made = [pod_spec(d) for d in documents if d["kind"] in {"Deployment", "StatefulSet", "Job"}]
    return made + [d["spec"] for d in documents if d["kind"] == "Pod"]
