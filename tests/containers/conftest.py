"""Everything in this folder needs a container engine and the images that `run` makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

UNPREPARED = pytest.mark.skipif(
    "OASR_TEST_COMPOSE" not in os.environ,
    reason="`make test-containers` prepares a container engine, Compose and images",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.docker)
            item.add_marker(UNPREPARED)
