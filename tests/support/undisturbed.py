"""Calls that a worker said everything of undisturbed, to hold disturbed ones against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.exactly_once import SETTINGS, read_committed, repeats
from tests.support.kafka import Topics, consume_all, create_topics, produce
from tests.support.nursery import Nursery
from tests.support.worker_calls import (
    all_ended,
    call_messages,
    ended,
    excerpt,
    said,
    side_by_side,
)
from worker.devkafka import Broker
from worker.messages import RawMessage

PARTITIONS = 2
PATIENCE_S = 240.0
# One step of the engine at a time decodes one window of each call, so that there is always
# something in the middle when something happens.
SLOWLY = {**SETTINGS, "OASR_ENGINE__MAX_CHUNKS_PER_STEP": "1"}


@dataclass(frozen=True)
class Calls:
    """Calls on a chunk topic, and what a worker says of them that nobody disturbs."""

    chunks: str
    number: int
    finals: dict[str, set[tuple[object, ...]]]
    totals: dict[str, object]


def calls_and_what_is_said(broker: Broker, folder: Path, number: int, seconds: float) -> Calls:
    """The undisturbed worker delivers at least once, in a group of its own."""
    topics, servers = create_topics(broker, partitions=PARTITIONS), broker.bootstrap_servers
    messages = [
        call_messages(topics, f"call-{n}", excerpt(n, (n // 2) * 4.0, seconds))
        for n in range(number)
    ]
    produce(servers, side_by_side(messages))
    with Nursery(servers, topics, "undisturbed", {}) as nursery:
        nursery.start(folder / "worker.log")
        events = consume_all(servers, topics.events, all_ended(number), timeout_s=PATIENCE_S)
    finals = said(consume_all(servers, topics.transcripts))
    return Calls(topics.chunks, number, finals, totals_of(events))


def totals_of(events: list[RawMessage]) -> dict[str, object]:
    """The totals of each session."""
    return {session: event["totals"] for session, event in ended(events).items()}


def await_finals(broker: str, topics: Topics, number: int) -> None:
    """Until so many are committed."""
    consume_all(
        broker, topics.transcripts, lambda found: len(found) >= number, timeout_s=PATIENCE_S
    )


def check_said(broker: str, topics: Topics, calls: Calls, exactly_once: bool = True) -> None:
    """In the end readers see what the undisturbed worker said; exactly once, each of it once."""
    consume_all(broker, topics.events, all_ended(calls.number), timeout_s=PATIENCE_S)
    finals, events = (read_committed(broker, t) for t in (topics.transcripts, topics.events))
    if exactly_once:
        assert repeats(finals) == repeats(events) == {}
    assert said(finals) == calls.finals
    assert totals_of(events) == calls.totals
