"""Where to begin on a partition: the group's commit, or the policy where there is none."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.consumers import FakeConsumer
from worker.assignment import Patience, Start, resolve_starts
from worker.producer import FatalClientError

POLICIES = ["earliest", "latest", "error"]


def consumer(
    commits: dict[int, tuple[int, str | None]] | None = None, partitions: int = 2
) -> FakeConsumer:
    fake = FakeConsumer()
    fake.logs = dict.fromkeys(range(partitions), (10, 90))
    fake.commits = commits or {}
    return fake


def resolved(
    fake: FakeConsumer,
    topic: str,
    partitions: list[int],
    policy: str,
    patience: Patience | None = None,
) -> list[Start]:
    """Where to begin, with one fake for the consumer and the cluster."""
    return resolve_starts(fake, fake, topic, partitions, policy, patience)  # type: ignore[arg-type]


def test_the_consumer_is_not_asked_for_metadata_inside_its_own_callback() -> None:
    asked = consumer()
    asked.list_topics = None  # type: ignore[assignment,method-assign]
    cluster = consumer(partitions=2)

    starts = resolve_starts(asked, cluster, "t", [0], "latest")  # type: ignore[arg-type]

    assert starts == [Start(0, 90, None)]


@pytest.mark.parametrize(("policy", "offset"), [("earliest", 10), ("latest", 90)])
def test_a_group_without_any_commit_begins_where_the_policy_says(policy: str, offset: int) -> None:
    starts = resolved(consumer(), "t", [0, 1], policy)

    assert starts == [Start(0, offset, None), Start(1, offset, None)]


def test_a_group_without_any_commit_may_be_an_error() -> None:
    with pytest.raises(FatalClientError, match=r"t/0: the group has no commit"):
        resolved(consumer(), "t", [0, 1], "error")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_commit_wins_over_the_policy_and_brings_its_metadata(policy: str) -> None:
    starts = resolved(consumer({0: (30, "map"), 1: (90, None)}), "t", [0, 1], policy)

    assert starts == [Start(0, 30, "map"), Start(1, 90, "")]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("ours", [[1], [0, 1]])
def test_a_partition_that_was_added_later_is_read_from_its_start(
    policy: str, ours: list[int]
) -> None:
    starts = resolved(consumer({0: (30, "map")}), "t", ours, policy)

    assert starts[-1] == Start(1, 10, None)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize(("committed", "lost"), [(4, 6), (91, 0)])
def test_a_commit_outside_the_log_is_reported_and_the_log_read_from_its_start(
    policy: str, committed: int, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        starts = resolved(consumer({0: (committed, "map")}), "t", [0], policy)

    assert starts == [Start(0, 10, None, lost)]
    assert "outside the log 10..90" in caplog.text


@pytest.mark.parametrize("committed", [4, 91])
def test_a_commit_outside_the_log_may_be_an_error(committed: int) -> None:
    with pytest.raises(FatalClientError, match="outside the log"):
        resolved(consumer({0: (committed, "map")}), "t", [0], "error")


@pytest.mark.parametrize("offset", [10, 90])
def test_the_log_includes_its_edges(offset: int) -> None:
    starts = resolved(consumer({0: (offset, "map")}), "t", [0], "error")

    assert starts == [Start(0, offset, "map")]


def test_a_commit_that_cannot_be_read_is_not_taken_for_none() -> None:
    fake = consumer()
    fake.commit_errors[0] = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(KafkaException):
        resolved(fake, "t", [0], "earliest")


class Waiting:
    """Time passes by sleeping; after some sleeps the leader is there."""

    def __init__(self, fake: FakeConsumer, sleeps: int) -> None:
        self.now_s = 50.0
        self._fake, self._sleeps = fake, sleeps
        self.patience = Patience(lambda: self.now_s, self._sleep, limit_s=10.0)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._sleeps -= 1
        if not self._sleeps:
            self._fake.refusal = self._fake.topic_error = None
            self._fake.commit_errors.clear()


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
    ],
)
def test_brokers_that_come_and_go_are_asked_again(code: int) -> None:
    fake = consumer({0: (30, "map")})
    fake.refusal = KafkaError(code)

    starts = resolved(fake, "t", [0], "error", Waiting(fake, sleeps=3).patience)

    assert starts == [Start(0, 30, "map")]


def test_a_topic_that_is_not_known_yet_is_not_one_without_commits() -> None:
    fake = consumer({0: (30, "map")}, partitions=2)
    fake.topic_error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    starts = resolved(fake, "t", [1], "latest", Waiting(fake, sleeps=3).patience)

    assert starts == [Start(1, 10, None)]


def test_a_leader_that_moves_is_asked_again() -> None:
    fake = consumer({0: (30, "map")})
    fake.refusal = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
    fake.commit_errors[0] = KafkaError(KafkaError.NOT_COORDINATOR)

    starts = resolved(fake, "t", [0], "error", Waiting(fake, sleeps=3).patience)

    assert starts == [Start(0, 30, "map")]


def test_a_leader_that_never_comes_ends_the_patience() -> None:
    fake = consumer()
    fake.refusal = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    waiting = Waiting(fake, sleeps=1000)

    with pytest.raises(KafkaException):
        resolved(fake, "t", [0], "earliest", waiting.patience)

    assert 60.0 <= waiting.now_s < 61.0


def test_an_empty_assignment_asks_nothing() -> None:
    assert resolved(consumer(), "t", [], "error") == []
