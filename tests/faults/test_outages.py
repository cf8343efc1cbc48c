"""Brokers that go away, move, and refuse what is sent to them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from oasr.models.registry import LoadedModel
from tests.support.fault_rig import (
    GROUP,
    PARTITIONS,
    TOPICS,
    make_settings,
    the_messages,
    worker_on,
)
from tests.support.mock_cluster import PRODUCE, MockCluster
from tests.support.worker_calls import record_id

LONGEST_TURN_S = 0.2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_finals_wait_while_all_brokers_are_away_and_are_delivered_once(
    cluster: MockCluster, model: LoadedModel, undisturbed: set[str], protocol: str
) -> None:
    # The outage is shorter than the session time-out: the assignment survives it.
    kafka = {"session_timeout_ms": 10_000 if protocol == "classic" else None}
    messages = the_messages()
    with worker_on(cluster, model, make_settings(cluster, protocol, kafka=kafka)) as rig:
        rig.join()
        rig.send(messages)
        # What was fetched is decoded without a broker.
        rig.turn_until("half is read", lambda: rig.metric("messages_consumed_total") > 80)
        cluster.stop_brokers()
        rig.health.longest_gap_s()
        rig.turn_for(3.0)
        away_s = rig.health.longest_gap_s()
        cluster.start_brokers()
        rig.turn_until("all committed", rig.all_committed)

        assert away_s < LONGEST_TURN_S
        assert rig.metric("rebalances_total", event="lost") == 0
        ids = [record_id(raw) for raw in rig.finals()]
        assert len(ids) == len(set(ids))
        assert set(ids) == undisturbed


def test_leaders_and_coordinators_move_and_nothing_is_lost(
    cluster: MockCluster, model: LoadedModel, undisturbed: set[str]
) -> None:
    messages = the_messages()
    pieces = [messages[start : start + 30] for start in range(0, len(messages), 30)]
    with worker_on(cluster, model) as rig:
        rig.join()
        for number, piece in enumerate(pieces):
            rig.send(piece)
            for group in (GROUP, f"{GROUP}.files"):
                cluster.coordinate(group, 1 + number % 3)
            for partition in PARTITIONS:
                cluster.lead(TOPICS.chunks, partition, 1 + (number + partition) % 3)
                cluster.lead(TOPICS.transcripts, partition, 1 + (number + partition + 1) % 3)
            rig.turn_for(0.3)
        rig.turn_until("all committed", rig.all_committed)

        assert {record_id(raw) for raw in rig.finals()} == undisturbed


def test_records_that_are_refused_for_a_while_are_delivered_once(
    cluster: MockCluster, model: LoadedModel, undisturbed: set[str]
) -> None:
    messages = the_messages()
    with worker_on(cluster, model) as rig:
        rig.join()
        rig.send(messages)
        cluster.fail(
            PRODUCE,
            # Only errors that say that nothing was written: after an uncertain one the client
            # takes a later success for proof, and the mock checks no sequence.
            [
                *[KafkaError.NOT_ENOUGH_REPLICAS] * 3,
                *[KafkaError.NOT_LEADER_FOR_PARTITION] * 3,
            ],
        )
        rig.turn_until("all committed", rig.all_committed)

        ids = [record_id(raw) for raw in rig.finals()]
        assert len(ids) == len(set(ids))
        assert set(ids) == undisturbed


def test_a_producer_that_lost_its_sequence_is_replaced_and_no_final_is_missing(
    cluster: MockCluster,
    model: LoadedModel,
    undisturbed: set[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages = the_messages()
    half = len(messages) // 2
    with worker_on(cluster, model) as rig:
        rig.join()
        rig.send(messages[:half])
        rig.turn_until("the first finals", lambda: _finals(rig.metric) > 2)
        rig.turn_for(0.3)
        # The head of the line is refused as out of order: a client gives up for good. The one
        # that is hit may be that of the partials, which is replaced too.
        for start in range(half, len(messages), 8):
            rig.send(messages[start : start + 8])
            if "records are sent again" not in caplog.text:
                cluster.fail(PRODUCE, [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER])
            rig.turn_for(0.2)
            cluster.heal(PRODUCE)
        rig.turn_until("all committed", rig.all_committed)

        assert "records are sent again" in caplog.text
        assert {record_id(raw) for raw in rig.finals()} == undisturbed


def _finals(metric) -> float:  # type: ignore[no-untyped-def]
    found: float = metric("records_published_total", kind="final")
    return found
