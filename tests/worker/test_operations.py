"""What operators are told to look at exists."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import CollectorRegistry

from worker.errors import ErrorCode
from worker.metrics import PREFIX, Metrics

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
# Words with an underscore in code quotes, with or without a label; settings have a dot.
NAME = re.compile(r"`([a-z]+(?:_[a-z]+)+)(?:\{(\w+)=\"(\w+)\"\})?`")


def test_every_metric_that_the_page_names_is_in_the_catalogue() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    families = list(registry.collect())
    # A counter's family has no suffix, its samples do.
    known = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    series = {(s.name, *label) for f in families for s in f.samples for label in s.labels.items()}

    named = NAME.findall(PAGE.read_text())
    assert len(named) > 15
    codes = set(ErrorCode)
    for name, label, value in named:
        if name in codes:
            continue
        assert PREFIX + name in known, name
        assert not label or (PREFIX + name, label, value) in series, (name, label, value)
