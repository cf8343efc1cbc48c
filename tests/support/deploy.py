"""What the tests of `deploy/` share: where things are, and the metrics that rules may name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
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
    return {name for name in selectors(expression) if name.startswith("oasr_worker")}


def labels_named(expression: str) -> set[str]:
    """The labels that an expression matches or groups by."""
    matched = {label for labels in selectors(expression).values() for label in labels}
    grouped = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([\w\s,]+)\)", expression)
    return matched | {label.strip() for labels in grouped for label in labels.split(",")}


def selectors(expression: str) -> dict[str, set[str]]:
    """The series that a PromQL expression reads, each with the labels that it matches.

    ValueError for what is no PromQL; Grafana's variables stand for what they will be.
    """
    filled = re.sub(r"\$__(rate_interval|range)", "5m", expression)
    found: dict[str, set[str]] = {}
    rest: list[Any] = [promql_parser.parse(re.sub(r"\$\w+", "x", filled))]
    while rest:
        node = rest.pop()
        if isinstance(node, promql_parser.VectorSelector):
            labels = {matcher.name for matcher in node.matchers.matchers}
            found[node.name] = found.get(node.name, set()) | labels
        parts = ("lhs", "rhs", "expr", "param", "vector_selector", "args")
        for part in (getattr(node, name, None) for name in parts):
            rest += part if isinstance(part, list) else [] if part is None else [part]
    return found


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
