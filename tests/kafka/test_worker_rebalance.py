"""Partitions move between workers while calls play."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.kafka import Topics, WorkerProcess, consume_all, produce, wait_until
from tests.support.worker_calls import (
    all_ended,
    call_messages,
    ended,
    excerpt,
    said,
    side_by_side,
)

CALLS = 8


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_move_while_calls_play_and_no_final_is_lost(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
    protocol: str,
) -> None:
    topics = unique_topics(partitions=4)
    settings = {"OASR_KAFKA__GROUP_PROTOCOL": protocol}
    if protocol == "consumer":
        settings["OASR_KAFKA__SESSION_TIMEOUT_MS"] = ""
    calls = [call_messages(topics, f"call-{n}", excerpt(n, 2.0 * n, 16.0)) for n in range(CALLS)]
    messages = list(side_by_side(calls))
    quarter = len(messages) // 4

    first = worker_process(topics, "movers", settings, name="first")
    second = worker_process(topics, "movers", settings, name="second")
    with first:
        produce(broker, messages[:quarter])
        with second:
            wait_until("both have partitions", lambda: owned(first) > 0 and owned(second) > 0)
            produce(broker, messages[quarter : 2 * quarter])
            assert first.terminate() == 0
            produce(broker, messages[2 * quarter : 3 * quarter])
            first.start()
            first.await_ready()
            wait_until("both have partitions", lambda: owned(first) > 0 and owned(second) > 0)
            produce(broker, messages[3 * quarter :])
            consume_all(broker, topics.events, all_ended(CALLS), timeout_s=90)

    finals = said(consume_all(broker, topics.transcripts))
    assert all(len(texts) == 1 for texts in finals.values())
    for session, event in ended(consume_all(broker, topics.events)).items():
        assert event["reason"] == "end"
        mine = [identity for identity in finals if identity.startswith(f"{session}:")]
        assert event["finals"] == len(mine)
        for totals in event["totals"]:
            assert totals["received"]["samples"] == 16 * 8000
    assert "Traceback" not in first.log() + second.log()


def owned(worker: WorkerProcess) -> float:
    """Partitions of the chunk and file topics that a worker has."""
    return worker.metric("oasr_worker_assigned_partitions")
