from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from oasr.models.registry import LoadedModel
from tests.support.engine import tiny_model


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return tiny_model()


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Small forwards lose more to the hand-over between threads than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
