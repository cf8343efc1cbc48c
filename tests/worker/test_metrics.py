"""The catalogue is documented, complete from the start, and free of unbounded labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from worker.errors import ErrorCode
from worker.metrics import PREFIX, Metrics

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
BOUNDED_LABELS = {
    *("topic", "partition", "outcome", "code", "kind", "lane", "event", "result", "fatal"),
    *("end_reason", "version", "model", "digest", "device", "dtype", "part", "check", "place"),
}


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return Metrics(registry)


def series(metrics: Metrics) -> list[MetricWrapperBase]:
    return [metric for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)]


def exposed_name(metric: MetricWrapperBase) -> str:
    return metric._name + ("_total" if metric._type == "counter" else "")


def test_the_documentation_lists_every_series(metrics):
    rows = re.findall(
        r"^\| `(oasr_worker_\w+)` \| (\w+) \| ([\w, ]*) \| (.+) \|$",
        DOCS.read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert rows == [
        (exposed_name(m), m._type, ", ".join(m._labelnames), m._documentation)
        for m in series(metrics)
    ]


def test_names_have_the_prefix_and_base_units_and_labels_are_bounded(metrics):
    for metric in series(metrics):
        assert metric._name.startswith(PREFIX)
        assert not re.search(r"_(ms|millis|kb|mb)(_|$)", metric._name)
        assert set(metric._labelnames) <= BOUNDED_LABELS
        assert metric._documentation.endswith(".")


def test_closed_label_sets_are_there_at_zero(registry):
    Metrics(registry)

    assert (
        registry.get_sample_value("oasr_worker_dead_letters_total", {"code": ErrorCode.ODD_BYTES})
        == 0
    )
    assert registry.get_sample_value("oasr_worker_commits_total", {"result": "failed"}) == 0
    assert registry.get_sample_value("oasr_worker_undecoded_audio_seconds", {"lane": "live"}) == 0
    assert registry.get_sample_value("oasr_worker_records_published_total", {"kind": "final"}) == 0


def test_what_is_counted_is_exposed(metrics, registry):
    metrics.messages_processed.labels("calls", "ok").inc(3)
    metrics.engine_batch_size.observe(7)

    text = generate_latest(registry).decode()

    assert 'oasr_worker_messages_processed_total{outcome="ok",topic="calls"} 3.0' in text
    assert 'oasr_worker_engine_batch_size_bucket{le="8.0"} 1.0' in text


def test_a_partition_that_is_gone_leaves_no_series(metrics, registry):
    gauges = [m for m in series(metrics) if "partition" in m._labelnames]
    for gauge in gauges:
        gauge.labels("calls", 3).set(9)
        gauge.labels("calls", 4).set(9)

    metrics.forget_partition("calls", 3)
    metrics.forget_partition("calls", 99)

    text = generate_latest(registry).decode()
    assert len(gauges) >= 4
    assert 'partition="3"' not in text
    assert text.count('partition="4"') == len(gauges)


def test_two_workers_in_one_process_do_not_share_series(registry):
    Metrics(registry)
    other = CollectorRegistry()
    Metrics(other).partials_shed.inc()

    assert registry.get_sample_value("oasr_worker_partials_shed_total") == 0
