"""More open calls on one partition than a commit can name: the map goes by reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.kafka import (
    Message,
    Topics,
    WorkerProcess,
    committed,
    consume_all,
    produce,
    wait_until,
)
from tests.support.worker_calls import (
    all_ended,
    body,
    call_messages,
    ended,
    excerpt,
    said,
    side_by_side,
)
from worker.metadata import MAX_CHARS
from worker.state_reference import MAGIC

CALLS = 85
RATE = 8000
HALF_S = 1
FAST = {"OASR_KAFKA__SESSION_TIMEOUT_MS": "2000"}


def name_of(number: int) -> str:
    """Ids of a usual length; the map carries those of calls that have nothing open."""
    return f"call-{number:04}-0f8e7c3a-52f1-4b0d-9a6e"


def halves(topics: Topics, number: int) -> tuple[list[Message], list[Message]]:
    """A stereo call that is flushed in its middle."""
    name = name_of(number)
    messages = call_messages(topics, name, excerpt(number, 1.0, 2 * HALF_S), 500)
    middle = 1000 * HALF_S // 500
    flush = Message(topics.chunks, name.encode(), None, {"event": "flush"})
    return [*messages[:middle], flush], messages[middle:]


@pytest.mark.timeout(600)
def test_a_killed_owner_of_more_calls_than_a_commit_names_leaves_all_of_them_to_its_heir(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    calls = [halves(topics, number) for number in range(CALLS)]
    first = list(side_by_side([before for before, _ in calls]))
    produce(broker, first)
    victim = worker_process(topics, "many", FAST, name="victim")
    victim.start()

    def all_is_committed() -> bool:
        place = committed(broker, "many", topics.chunks).get(0)
        return place is not None and place.offset == len(first)

    wait_until("the first halves are committed", all_is_committed, 240)
    # Nothing is open now: what the heir knows of the calls, it knows from the map alone.
    assert committed(broker, "many", topics.chunks)[0].metadata.startswith(MAGIC)
    assert victim.metric("oasr_worker_map_chars") > MAX_CHARS
    victim.kill()

    produce(broker, side_by_side([after for _, after in calls]))
    with worker_process(topics, "many", FAST, name="heir") as heir:
        events = consume_all(broker, topics.events, all_ended(CALLS), timeout_s=240)
        assert heir.metric('oasr_worker_state_reads_total{result="found"}') == 1
        assert heir.metric("oasr_worker_maps_ignored_total") == 0

    told = Counter((body(raw)["session_id"], body(raw)["event"]) for raw in events)
    assert told == {
        (name_of(number), event): 1 for number in range(CALLS) for event in ("started", "ended")
    }
    finals = consume_all(broker, topics.transcripts)
    assert all(len(texts) == 1 for texts in said(finals).values())
    per_call = Counter(str(body(raw)["session_id"]) for raw in finals)
    for session, event in ended(events).items():
        assert event["finals"] == per_call[session]
        totals = event["totals"]
        assert isinstance(totals, list)
        assert [t["received"]["samples"] for t in totals] == [2 * HALF_S * RATE] * 2
