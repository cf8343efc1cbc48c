"""Alerts and dashboard are valid, tested, and name only what a worker exposes."""

from __future__ import annotations

import re

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.deploy import (
    ALERTS,
    ROOT,
    alerts,
    catalogue,
    dashboard,
    dashboard_expressions,
    labels_named,
    promtool,
    rules,
    selectors,
    series_named,
)
from worker.metrics import Metrics

RULE_TESTS = ALERTS.with_name("alerts.test.yaml")
# what a scrape adds to every series
SCRAPE_LABELS = {"namespace", "job", "instance"}
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def every_expression() -> list[str]:
    return [rule["expr"] for rule in rules()] + dashboard_expressions()


def test_every_series_in_rules_and_dashboard_is_in_the_catalogue_or_recorded():
    known = set(catalogue()) | RECORDED

    for expression in every_expression():
        assert series_named(expression) <= known, expression
        assert series_named(expression) or "up{" in expression, expression


def test_every_label_in_rules_and_dashboard_is_one_of_a_series_there():
    own = catalogue()

    for expression in every_expression():
        allowed = set(SCRAPE_LABELS)
        for name in series_named(expression):
            allowed |= own.get(name, set())
            if name in RECORDED:
                recording = next(rule["expr"] for rule in rules() if rule.get("record") == name)
                allowed |= labels_named(recording)
        assert labels_named(expression) <= allowed, expression


def test_every_recording_is_used_or_a_figure_to_size_by():
    used = {name for rule in alerts() for name in series_named(rule["expr"])}

    assert RECORDED - used == {
        "oasr_worker:audio_seconds:rate5m",
        "oasr_worker:real_time_factor:ratio_rate5m",
    }


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_how_bad(rule):
    assert re.fullmatch(r"OasrWorker[A-Z][A-Za-z]+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])


def test_aggregations_of_rules_keep_namespace_and_job():
    for rule in rules():
        for labels in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
            assert labels.startswith("namespace, job"), rule


def test_every_selector_matches_only_labels_that_its_series_has():
    own = catalogue()

    for expression in every_expression():
        for name, labels in selectors(expression).items():
            if name in own:
                assert labels <= own[name] | SCRAPE_LABELS, expression


def test_every_alert_fires_in_a_rule_test_and_keeps_quiet_in_another_that_has_its_series():
    ordinary, *troubles = yaml.safe_load(RULE_TESTS.read_text(encoding="utf-8"))["tests"]
    fed = {name for given in ordinary["input_series"] for name in selectors(given["series"])}
    fired = set()
    for trouble in troubles:
        for expected in trouble.get("alert_rule_test", ()):
            if expected["exp_alerts"]:
                fired.add(expected["alertname"])
        for expected in trouble.get("promql_expr_test", ()):
            fired |= set(re.findall(r"OasrWorker\w+", str(expected["exp_samples"])))

    assert ordinary["promql_expr_test"][0]["expr"] == "count by (alertname) (ALERTS)"
    assert ordinary["promql_expr_test"][0]["exp_samples"] == []
    assert fired == {rule["alert"] for rule in alerts()}
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    for rule in alerts():
        for name in selectors(rule["expr"]):
            read = selectors(recorded[name]) if name in recorded else {name}
            assert set(read) <= fed, rule["alert"]


def test_the_documentation_lists_the_panels_of_the_dashboard():
    manual = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^- \*(.+?)\*: (.+?)\.$", manual.partition("## Dashboard")[2], re.MULTILINE
    )
    rows: list[tuple[str, list[str]]] = []
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            rows.append((panel["title"], []))
        else:
            rows[-1][1].append(panel["title"])

    assert listed == [(row, "; ".join(titles)) for row, titles in rows]


def test_promtool_accepts_the_rules_and_their_tests_pass():
    checked = promtool("check", "rules", ALERTS)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    tested = promtool("test", "rules", RULE_TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_promtool_parses_every_query_of_the_dashboard(tmp_path):
    def as_rule(number: int, expression: str) -> dict[str, str]:
        filled = re.sub(r"\$__(rate_interval|range)", "5m", expression)
        return {"record": f"query:{number}", "expr": re.sub(r"\$\w+", "x", filled)}

    queries = [as_rule(*numbered) for numbered in enumerate(dashboard_expressions())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": queries}]}))

    checked = promtool("check", "rules", path)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(queries)} rules found" in checked.stdout


def test_the_dashboard_can_be_provisioned_beside_others():
    board = dashboard()

    assert board["id"] is None
    assert board["uid"] == "oasr-worker"
    assert "__inputs" not in board
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names == ["datasource", "namespace", "job", "instance"]
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"].endswith(".")
            assert panel["targets"]


def test_the_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = dashboard()["panels"]
    taken = set()

    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_linter_has_nothing_to_say_about_a_scrape():
    registry = CollectorRegistry()
    Metrics(registry)

    checked = promtool("check", "metrics", stdin=generate_latest(registry).decode())

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout + checked.stderr == ""


def test_every_alert_has_a_paragraph_that_says_what_to_do():
    manual = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")

    assert re.findall(r"^#### (\w+)$", manual, re.MULTILINE) == [r["alert"] for r in alerts()]
