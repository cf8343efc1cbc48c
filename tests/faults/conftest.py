"""A fresh mock cluster for each test, and what an undisturbed worker says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from oasr.models.registry import LoadedModel
from tests.support.engine import tiny_model
from tests.support.fault_rig import make_topics, the_messages, worker_on
from tests.support.mock_cluster import MockCluster
from tests.support.worker_calls import record_id


@pytest.fixture(scope="session")
def model() -> LoadedModel:
    torch.set_num_threads(1)
    return tiny_model()


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Three brokers with the worker's topics."""
    with MockCluster() as found:
        make_topics(found)
        yield found


@pytest.fixture(scope="session")
def undisturbed(model: LoadedModel) -> set[str]:
    """Ids of the finals of `the_messages`, which no fault may change."""
    with MockCluster() as cluster:
        make_topics(cluster)
        with worker_on(cluster, model) as rig:
            rig.join()
            rig.send(the_messages())
            rig.turn_until("all committed", rig.all_committed)
            ids = [record_id(raw) for raw in rig.finals()]
    assert len(ids) == len(set(ids)) > 8
    return set(ids)
