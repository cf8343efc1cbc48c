"""A worker that is killed again and again: nothing is lost and nothing is told differently."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from tests.support.kafka import Topics, WorkerProcess, committed, consume_all, produce, wait_until
from tests.support.worker_calls import (
    all_ended,
    body,
    call_messages,
    ended,
    excerpt,
    record_id,
    said,
    side_by_side,
)

KILLS = 10
CALLS = 12
FAST = {"OASR_KAFKA__SESSION_TIMEOUT_MS": "2000"}


def the_calls(topics: Topics) -> list[list]:
    return [
        call_messages(topics, f"call-{n}", excerpt(n, (n // 2) * 4.0, 22.0)) for n in range(CALLS)
    ]


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_ten_kills_give_the_finals_of_an_undisturbed_run(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=2)
    undisturbed_outputs = unique_topics(partitions=2)
    undisturbed_topics = Topics(
        chunks=topics.chunks,
        files=undisturbed_outputs.files,
        transcripts=undisturbed_outputs.transcripts,
        partials=undisturbed_outputs.partials,
        events=undisturbed_outputs.events,
        dead_letters=undisturbed_outputs.dead_letters,
        state=undisturbed_outputs.state,
    )
    produce(broker, side_by_side(the_calls(topics)))
    with worker_process(undisturbed_topics, "undisturbed", FAST, name="undisturbed"):
        consume_all(broker, undisturbed_topics.events, all_ended(CALLS), timeout_s=120)
    expected = said(consume_all(broker, undisturbed_topics.transcripts))
    assert len(expected) > 3 * CALLS

    # One step of the engine at a time decodes one window of each call, so that there is
    # always something in the middle when the kill comes.
    victim = worker_process(topics, "killed", {**FAST, "OASR_ENGINE__MAX_CHUNKS_PER_STEP": "1"})
    rng = random.Random(7)
    for _ in range(KILLS):
        before = len(said(consume_all(broker, topics.transcripts)))
        if before >= len(expected):
            break
        victim.start()
        more = rng.randint(1, max(1, len(expected) // (KILLS + 2)))
        consume_all(
            broker,
            topics.transcripts,
            lambda found, wanted=before + more: len(said(found)) >= min(wanted, len(expected)),
            timeout_s=60,
        )
        victim.kill()
    with victim:
        consume_all(broker, topics.events, all_ended(CALLS), timeout_s=120)

    assert said(consume_all(broker, topics.transcripts)) == expected
    events = consume_all(broker, topics.events)
    totals = {session: event["totals"] for session, event in ended(events).items()}
    undisturbed = ended(consume_all(broker, undisturbed_topics.events))
    assert totals == {session: event["totals"] for session, event in undisturbed.items()}


@pytest.mark.timeout(300)
def test_a_commit_never_passes_a_message_of_an_open_segment(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    seen: list[tuple[int, set[str]]] = []
    done = threading.Event()

    def watch() -> None:
        # What is on the topic after an offset was read as committed had to be there before it.
        while not done.is_set():
            places = committed(broker, "watched", topics.chunks)
            if places:
                finals = {record_id(raw) for raw in consume_all(broker, topics.transcripts)}
                seen.append((places[0].offset, finals))

    calls = [call_messages(topics, f"call-{n}", excerpt(n, 0.0, 20.0), 100) for n in range(4)]
    messages = list(side_by_side(calls))
    with worker_process(topics, "watched", {"OASR_COMMITS__INTERVAL_MS": "20"}):
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for start in range(0, len(messages), 40):
                produce(broker, messages[start : start + 40])
            consume_all(broker, topics.events, all_ended(4), timeout_s=60)
            wait_until(
                "everything is committed",
                lambda: committed(broker, "watched", topics.chunks)[0].offset == len(messages),
            )
        finally:
            done.set()
            watcher.join()

    finals = {record_id(raw): body(raw) for raw in consume_all(broker, topics.transcripts)}
    moving = [offset for offset, _ in seen if 0 < offset < len(messages)]
    assert len(set(moving)) > 3
    for offset, there in seen:
        for identity, final in finals.items():
            source = final["source"]
            assert isinstance(source, dict)
            assert identity in there or source["first_offset"] >= offset
