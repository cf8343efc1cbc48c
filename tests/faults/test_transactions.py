"""What the broker answers inside a transaction, and what becomes of the calls.

The mock cluster hides no aborted records, so ids may be there twice here: on a real broker no
reader of committed records sees those. Nor does it keep positions that come in a transaction.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from oasr.models.registry import LoadedModel
from tests.support.exactly_once import read_committed
from tests.support.fault_rig import TOPICS, Rig, make_settings, the_messages, worker_on
from tests.support.kafka import Message
from tests.support.mock_cluster import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    MockCluster,
)
from tests.support.worker_calls import RECORDINGS, record_id
from worker.messages import RawMessage
from worker.producer import FatalClientError

CALLS = 4  # of `the_messages`
EXACTLY_ONCE = {"delivery": {"mode": "exactly-once"}}
# (request, error, the outcome that is counted; None: the client repeats it by itself)
ANSWERS = [
    (TXN_OFFSET_COMMIT, KafkaError.ILLEGAL_GENERATION, "refused"),
    (TXN_OFFSET_COMMIT, KafkaError.UNKNOWN_MEMBER_ID, "evicted"),
    (TXN_OFFSET_COMMIT, KafkaError.OFFSET_METADATA_TOO_LARGE, "aborted"),
    (TXN_OFFSET_COMMIT, KafkaError.NOT_COORDINATOR, None),
    (ADD_OFFSETS_TO_TXN, KafkaError.CONCURRENT_TRANSACTIONS, None),
    (ADD_PARTITIONS_TO_TXN, KafkaError.PRODUCER_FENCED, "aborted"),
    (END_TXN, KafkaError.NOT_COORDINATOR, None),
    (END_TXN, KafkaError.INVALID_PRODUCER_EPOCH, "aborted"),
    (PRODUCE, KafkaError.INVALID_PRODUCER_EPOCH, "aborted"),
]
NAMES = {
    PRODUCE: "produce",
    ADD_PARTITIONS_TO_TXN: "add_partitions",
    ADD_OFFSETS_TO_TXN: "add_offsets",
    END_TXN: "end",
    TXN_OFFSET_COMMIT: "offset_commit",
}


def told(cluster: MockCluster) -> list[RawMessage]:
    """Every final on its topic."""
    return read_committed(cluster.bootstrap_servers, TOPICS.transcripts)


def all_told(rig: Rig, messages: int) -> bool:
    """Whether every message is done, and what that took is committed."""
    done = rig.metric("messages_processed_total", topic=TOPICS.chunks) >= messages
    told = rig.metric("records_published_total", kind="event") >= 2 * CALLS
    return done and told and rig.metric("open_sessions") == 0


@pytest.mark.parametrize(
    ("request_", "error", "outcome"),
    ANSWERS,
    ids=[f"{NAMES[request_]}-{KafkaError(error).name()}" for request_, error, _ in ANSWERS],
)
def test_a_transaction_that_meets_an_error_loses_no_final(
    cluster: MockCluster,
    model: LoadedModel,
    undisturbed: set[str],
    request_: int,
    error: int,
    outcome: str | None,
) -> None:
    messages = the_messages()
    half = len(messages) // 2
    with worker_on(cluster, model, make_settings(cluster, "classic", **EXACTLY_ONCE)) as rig:
        rig.join()
        rig.send(messages[:half])
        rig.turn_for(0.3)
        cluster.fail(request_, [error])
        if outcome == "evicted":
            cluster.fail(HEARTBEAT, [error])
        rig.send(messages[half:])
        rig.turn_until("all told", lambda: all_told(rig, len(messages)), 60)

        assert {record_id(raw) for raw in told(cluster)} == undisturbed
        failed = rig.metric("transactions_total") - rig.metric(
            "transactions_total", result="committed"
        )
        counted = 0 if outcome is None else rig.metric("transactions_total", result=outcome)
        assert counted == failed
        assert (failed > 0) == (outcome is not None)


def test_a_producer_that_may_not_have_its_name_ends_the_worker(
    cluster: MockCluster, model: LoadedModel
) -> None:
    cluster.fail(INIT_PRODUCER_ID, [KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 9)
    settings = make_settings(cluster, "classic", **EXACTLY_ONCE)
    with (
        pytest.raises(FatalClientError, match="ransactional"),
        worker_on(cluster, model, settings) as rig,
    ):
        rig.turn_for(20)


def test_the_loop_goes_on_while_the_coordinator_of_transactions_is_away(
    cluster: MockCluster, model: LoadedModel, undisturbed: set[str]
) -> None:
    with worker_on(cluster, model, make_settings(cluster, "classic", **EXACTLY_ONCE)) as rig:
        rig.join()
        rig.turn_for(0.3)
        rig.health.longest_gap_s()
        cluster.fail(END_TXN, [KafkaError.COORDINATOR_NOT_AVAILABLE] * 20)
        rig.send(the_messages())
        rig.turn_for(2)
        longest = rig.health.longest_gap_s()
        cluster.heal(END_TXN)
        rig.turn_until("all told", lambda: all_told(rig, len(the_messages())), 60)

        assert longest < 1.0
        assert {record_id(raw) for raw in told(cluster)} == undisturbed


def test_files_go_out_in_transactions_of_their_own(
    cluster: MockCluster, model: LoadedModel
) -> None:
    recording = RECORDINGS[0].read_bytes()
    headers = {"content-type": "audio/wav"}
    with worker_on(cluster, model, make_settings(cluster, "classic", **EXACTLY_ONCE)) as rig:
        rig.join()
        cluster.fail(END_TXN, [KafkaError.PRODUCER_FENCED])
        rig.send(
            [
                Message(TOPICS.files, b"recording", recording, headers),
                Message(TOPICS.files, b"garbage", b"RIFF" + b"x" * 99, headers),
            ]
        )
        rig.turn_until(
            "both are done",
            lambda: rig.metric("messages_processed_total", topic=TOPICS.files) == 2,
            60,
        )
        rig.turn_until(
            "both are told",
            lambda: (
                rig.metric("records_published_total", kind="event") == 1
                and rig.metric("records_published_total", kind="dead_letter") == 1
            ),
            60,
        )
        published = rig.metric("records_published_total", kind="final")
        # Some were aborted: the mock cluster shows those too.
        assert len({record_id(raw) for raw in told(cluster)}) == published > 0
