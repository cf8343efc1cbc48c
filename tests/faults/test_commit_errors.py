"""What the broker answers to a commit, and what becomes of the calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from oasr.models.registry import LoadedModel
from tests.support.fault_rig import GROUP, TOPICS, make_settings, the_messages, worker_on
from tests.support.kafka import WorkerProcess, produce
from tests.support.mock_cluster import GROUP_HEARTBEAT, OFFSET_COMMIT, MockCluster
from tests.support.worker_calls import record_id

BOTH = ("classic", "consumer")
# (protocol, error, the result that is counted; None: the client repeats the commit by itself)
ANSWERS = [
    ("classic", KafkaError.ILLEGAL_GENERATION, "retried"),
    ("classic", KafkaError.UNKNOWN_MEMBER_ID, "lost"),
    ("consumer", KafkaError.STALE_MEMBER_EPOCH, "retried"),
    *((protocol, KafkaError.REBALANCE_IN_PROGRESS, "retried") for protocol in BOTH),
    ("classic", KafkaError.OFFSET_METADATA_TOO_LARGE, "failed"),
    *((protocol, KafkaError.NOT_COORDINATOR, None) for protocol in BOTH),
    ("classic", KafkaError.COORDINATOR_LOAD_IN_PROGRESS, None),
    ("consumer", KafkaError.REQUEST_TIMED_OUT, None),
]


@pytest.mark.parametrize(
    ("protocol", "error", "result"),
    ANSWERS,
    ids=[f"{protocol}-{KafkaError(error).name()}" for protocol, error, _ in ANSWERS],
)
def test_a_commit_that_is_refused_twice_loses_no_final(
    cluster: MockCluster,
    model: LoadedModel,
    undisturbed: set[str],
    protocol: str,
    error: int,
    result: str | None,
) -> None:
    messages = the_messages()
    half = len(messages) // 2
    with worker_on(cluster, model, make_settings(cluster, protocol)) as rig:
        rig.join()
        rig.send(messages[:half])
        rig.turn_for(0.3)
        cluster.fail(OFFSET_COMMIT, [error] * 2)
        rig.send(messages[half:])
        rig.turn_until("all committed", rig.all_committed)

        assert {record_id(raw) for raw in rig.finals()} == undisturbed
        for name in ("retried", "lost", "failed"):
            # Both commits may have been on their way, or the second be of the next assignment.
            least = 1 if name == result else 0
            assert least <= rig.metric("commits_total", result=name) <= 3 * least, name
        if result == "lost":
            assert rig.metric("rebalances_total", event="lost") > 0


def test_a_member_of_the_new_protocol_that_is_thrown_out_joins_again(
    cluster: MockCluster, model: LoadedModel, undisturbed: set[str]
) -> None:
    messages = the_messages()
    half = len(messages) // 2
    cluster.time_members(session_timeout_ms=3000, heartbeat_ms=200)
    with worker_on(cluster, model, make_settings(cluster, "consumer")) as rig:
        rig.join()
        rig.send(messages[:half])
        rig.turn_for(0.3)
        # The broker knows the member neither when it commits nor when it calls.
        cluster.fail(OFFSET_COMMIT, [KafkaError.UNKNOWN_MEMBER_ID])
        cluster.fail(GROUP_HEARTBEAT, [KafkaError.UNKNOWN_MEMBER_ID] * 2)
        rig.send(messages[half:])
        rig.turn_until("all committed", rig.all_committed)

        assert rig.metric("rebalances_total", event="lost") > 0
        assert {record_id(raw) for raw in rig.finals()} == undisturbed


def test_a_static_member_that_is_fenced_ends_the_process_with_one_line(
    cluster: MockCluster, tmp_path: Path
) -> None:
    worker = WorkerProcess(cluster.bootstrap_servers, TOPICS, GROUP, tmp_path / "worker.log")
    with worker:
        cluster.fail(OFFSET_COMMIT, [KafkaError.FENCED_INSTANCE_ID])
        produce(cluster.bootstrap_servers, the_messages(1))

        assert worker.process.wait(20) == 1
    errors = [line for line in worker.log().splitlines() if "ERROR" in line]
    assert len(errors) == 1, worker.log()
    assert "fenced" in errors[0]
    assert "Traceback" not in worker.log()
