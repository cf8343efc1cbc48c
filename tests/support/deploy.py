"""What the tests of `deploy/` share: where things are, and the metrics that rules may name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from worker.metrics import Metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "oasr-worker.json"

_SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}


def rules() -> list[dict[str, Any]]:
    """All recording and alert rules."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """The alert rules."""
    return [rule for rule in rules() if "alert" in rule]


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard."""
    contents: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return contents


def dashboard_expressions() -> list[str]:
    """Every query of the dashboard's panels and annotations."""
    board = dashboard()
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return panels + [note["expr"] for note in board["annotations"]["list"]]


def catalogue() -> dict[str, set[str]]:
    """The series that a worker exposes, each with its own labels."""
    found: dict[str, set[str]] = {}
    for metric in vars(Metrics(CollectorRegistry())).values():
        if isinstance(metric, MetricWrapperBase):
            for suffix in _SUFFIXES[metric._type]:
                labels = {*metric._labelnames, *(("le",) if suffix == "_bucket" else ())}
                found[metric._name + suffix] = labels
    return found


def series_named(expression: str) -> set[str]:
    """The worker's series and recordings that an expression names."""
    return set(re.findall(r"\boasr_worker[_:][a-z0-9_:]+", expression))


def labels_named(expression: str) -> set[str]:
    """The labels that an expression matches or groups by."""
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    grouped = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([\w\s,]+)\)", expression)
    return set(matched) | {label.strip() for labels in grouped for label in labels.split(",")}


def promtool(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs promtool; without it the test is skipped, or fails under OASR_REQUIRE_PROMTOOL=1."""
    program = shutil.which("promtool")
    if program is None:
        refuse = pytest.fail if os.environ.get("OASR_REQUIRE_PROMTOOL") == "1" else pytest.skip
        refuse("promtool is not installed (Debian: apt-get install prometheus)")
    return subprocess.run(
        [program, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
