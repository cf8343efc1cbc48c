"""The worker as a process: it comes up, does a call, is killed and followed, leaves in order."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import orjson

from tests.support.kafka import (
    Message,
    Topics,
    WorkerProcess,
    committed,
    consume_all,
    produce,
    wait_until,
)
from worker.call_files import find_audio, read_call
from worker.demo_calls import CALLS
from worker.messages import RawMessage
from worker.playback import CallPlan

UniqueTopics = Callable[..., Topics]
PrepareWorker = Callable[..., WorkerProcess]


def call_messages(topics: Topics, session_id: str) -> list[Message]:
    plan = CallPlan(session_id, read_call(find_audio([CALLS])[0]))
    return [
        Message(topics.chunks, session_id.encode(), planned.value, planned.headers)
        for planned in plan.messages()
    ]


def ended(events: list[RawMessage], count: int = 1) -> bool:
    return len(ended_events(events)) == count


def ended_events(events: list[RawMessage]) -> list[dict[str, object]]:
    bodies = [orjson.loads(event.value or b"{}") for event in events]
    return [body for body in bodies if body.get("event") == "ended"]


def test_a_worker_comes_up_does_a_call_and_leaves_in_order(
    broker: str, unique_topics: UniqueTopics, worker_process: PrepareWorker
) -> None:
    topics, group = unique_topics(), f"life-{uuid.uuid4().hex[:8]}"
    with worker_process(topics, group) as worker:
        messages = call_messages(topics, "call")
        places = produce(broker, messages)
        events = consume_all(broker, topics.events, until=ended, timeout_s=90)

        (partition,) = {partition for partition, _ in places}
        wait_until(
            "everything is committed",
            lambda: (
                partition in (now := committed(broker, group, topics.chunks))
                and now[partition].offset == len(messages)
            ),
        )
        assert worker.http("/livez")[0] == 200
        assert worker.metric("oasr_worker_segments_total") > 0
        assert worker.terminate() == 0, worker.log()

    finals = consume_all(broker, topics.transcripts)
    (event,) = ended_events(events)
    assert event["finals"] == len(finals) > 0
    assert all(orjson.loads(final.value or b"")["is_final"] for final in finals)


def test_a_worker_that_was_killed_is_followed_by_one_that_goes_on(
    broker: str, unique_topics: UniqueTopics, worker_process: PrepareWorker
) -> None:
    topics, group = unique_topics(partitions=1), f"life-{uuid.uuid4().hex[:8]}"
    messages = call_messages(topics, "call")
    middle = len(messages) // 2
    with worker_process(topics, group, name="first") as first:
        produce(broker, messages[:middle])
        consume_all(broker, topics.transcripts, until=lambda finals: len(finals) > 1, timeout_s=90)
        first.kill()
    with worker_process(topics, group, name="second") as second:
        produce(broker, messages[middle:])
        (event,) = ended_events(consume_all(broker, topics.events, until=ended, timeout_s=90))
        assert second.terminate() == 0, second.log()

    ids = {dict(final.headers)["ce_id"] for final in consume_all(broker, topics.transcripts)}
    assert event["finals"] == len(ids)
