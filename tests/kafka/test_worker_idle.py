"""A call that falls silent is cut, however busy its partition is."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

import orjson

from tests.support.kafka import Message, Topics, WorkerProcess, consume_all, produce, wait_until
from worker.call_files import find_audio, read_call
from worker.demo_calls import CALLS
from worker.playback import CallPlan

UniqueTopics = Callable[..., Topics]
PrepareWorker = Callable[..., WorkerProcess]


def chunks(topics: Topics, session_id: str) -> list[Message]:
    plan = CallPlan(session_id, read_call(find_audio([CALLS])[0]))
    return [
        Message(topics.chunks, session_id.encode(), planned.value, planned.headers)
        for planned in plan.messages()
    ]


def test_a_silent_call_is_cut_while_another_one_goes_on(
    broker: str, unique_topics: UniqueTopics, worker_process: PrepareWorker
) -> None:
    topics, group = unique_topics(partitions=1), f"idle-{uuid.uuid4().hex[:8]}"
    silent, going_on = chunks(topics, "silent"), iter(chunks(topics, "going-on"))
    settings = {"OASR_SESSIONS__IDLE_FINALIZE_MS": "2000"}
    with worker_process(topics, group, settings=settings) as worker:
        produce(broker, silent[: len(silent) // 2])
        reasons: set[str] = set()

        def cut() -> bool:
            produce(broker, list(itertools.islice(going_on, 2)))
            for final in consume_all(broker, topics.transcripts):
                body = orjson.loads(final.value or b"")
                if body["session_id"] == "silent":
                    reasons.add(body["end_reason"])
            return "idle" in reasons

        wait_until("the silent call is cut", cut, timeout_s=90)
        assert next(going_on, None) is not None, "the other call was over before"
        assert worker.terminate() == 0, worker.log()
