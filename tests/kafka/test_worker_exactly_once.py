"""Whatever happens to workers, readers of committed records see each final and event once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.support.exactly_once import SETTINGS, read_committed, repeats
from tests.support.kafka import Topics, WorkerProcess, consume_all, produce
from tests.support.worker_calls import (
    all_ended,
    call_messages,
    ended,
    excerpt,
    said,
    side_by_side,
)
from worker.messages import RawMessage

CALLS = 8
SECONDS = 16.0
KILLS = 10
PATIENCE_S = 240.0
# One step of the engine at a time decodes one window of each call, so that there is always
# something in the middle when a kill comes.
SLOWLY = {**SETTINGS, "OASR_ENGINE__MAX_CHUNKS_PER_STEP": "1"}


@dataclass(frozen=True)
class Undisturbed:
    """What a worker says that nobody disturbs, delivering at least once."""

    finals: dict[str, set[tuple[object, ...]]]
    totals: dict[str, object]


@pytest.fixture
def topics(unique_topics: Callable[..., Topics]) -> Topics:
    return unique_topics(partitions=2)


@pytest.fixture
def undisturbed(
    broker: str,
    topics: Topics,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> Undisturbed:
    """The calls are on the chunk topic, and another group has told them elsewhere."""
    calls = [
        call_messages(topics, f"call-{n}", excerpt(n, (n // 2) * 4.0, SECONDS))
        for n in range(CALLS)
    ]
    produce(broker, side_by_side(calls))
    others = replace(unique_topics(partitions=2), chunks=topics.chunks)
    with worker_process(others, "undisturbed", name="undisturbed"):
        events = consume_all(broker, others.events, all_ended(CALLS), timeout_s=PATIENCE_S)
    finals = said(consume_all(broker, others.transcripts))
    assert len(finals) > 3 * CALLS
    return Undisturbed(finals, totals_of(events))


def totals_of(events: list[RawMessage]) -> dict[str, object]:
    """The totals of each session."""
    return {session: event["totals"] for session, event in ended(events).items()}


def check(broker: str, topics: Topics, undisturbed: Undisturbed) -> None:
    """Readers of committed records see what the undisturbed worker said, and each of it once."""
    finals, events = (read_committed(broker, t) for t in (topics.transcripts, topics.events))
    assert repeats(finals) == repeats(events) == {}
    assert said(finals) == undisturbed.finals
    assert totals_of(events) == undisturbed.totals


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_ten_kills_repeat_and_lose_nothing(
    broker: str,
    topics: Topics,
    undisturbed: Undisturbed,
    worker_process: Callable[..., WorkerProcess],
) -> None:
    victim = worker_process(topics, "killed", SLOWLY)
    number = len(undisturbed.finals)
    rng = random.Random(7)
    for _ in range(KILLS):
        before = len(read_committed(broker, topics.transcripts))
        if before >= number:
            break
        wanted = min(before + rng.randint(1, max(1, number // (KILLS + 2))), number)
        victim.start()
        try:
            consume_all(
                broker,
                topics.transcripts,
                lambda found, wanted=wanted: len(found) >= wanted,
                timeout_s=PATIENCE_S,
            )
        finally:
            victim.kill()
    with victim:
        consume_all(broker, topics.events, all_ended(CALLS), timeout_s=PATIENCE_S)

    check(broker, topics, undisturbed)
