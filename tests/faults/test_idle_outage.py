"""Brokers that are away are not callers who are silent."""

from __future__ import annotations

import pytest

from oasr.models.registry import LoadedModel
from tests.support.fault_rig import make_settings, the_messages, worker_on
from tests.support.mock_cluster import MockCluster

IDLE_S = 1.5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_outage_longer_than_the_idle_time_cuts_no_call(
    cluster: MockCluster, model: LoadedModel, protocol: str
) -> None:
    settings = make_settings(
        cluster,
        protocol,
        kafka={"session_timeout_ms": 10_000 if protocol == "classic" else None},
        sessions={"idle_finalize_ms": round(IDLE_S * 1000)},
    )
    going_on = [message for message in the_messages() if message.value]
    with worker_on(cluster, model, settings) as rig:
        rig.join()
        rig.turn_for(1.2)  # the client has said that its leaders are there
        rig.send(going_on)
        rig.turn_until(
            "all is read", lambda: rig.metric("messages_consumed_total") == len(going_on)
        )
        cluster.stop_brokers()
        rig.turn_for(2 * IDLE_S)
        during = rig.metric("segments_total", end_reason="idle")
        cluster.start_brokers()
        rig.turn_for(0.5 * IDLE_S)
        soon_after = rig.metric("segments_total", end_reason="idle")

        assert (during, soon_after) == (0, 0)
        # Callers who stay silent once they could be heard are cut as ever.
        rig.turn_until(
            "idle cuts", lambda: rig.metric("segments_total", end_reason="idle") > 0, 10.0
        )
