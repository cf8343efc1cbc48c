"""Whatever happens to workers, readers of committed records see each final and event once."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.exactly_once import SETTINGS, read_committed, repeats
from tests.support.kafka import (
    Topics,
    consume_all,
    create_topics,
    produce,
    wait_until,
)
from tests.support.nursery import Forked, Nursery
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

CALLS = 8
SECONDS = 16.0
KILLS = 10
FREEZES = 4
COMINGS = 3
PATIENCE_S = 240.0
# One step of the engine at a time decodes one window of each call, so that there is always
# something in the middle when something happens.
SLOWLY = {**SETTINGS, "OASR_ENGINE__MAX_CHUNKS_PER_STEP": "1"}


@dataclass(frozen=True)
class Calls:
    """Calls on a chunk topic, and what a worker says of them that nobody disturbs."""

    chunks: str
    finals: dict[str, set[tuple[object, ...]]]
    totals: dict[str, object]


@pytest.fixture(scope="module")
def calls(real_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """The undisturbed worker delivers at least once, in a group of its own."""
    topics, servers = create_topics(real_broker, partitions=2), real_broker.bootstrap_servers
    messages = [
        call_messages(topics, f"call-{n}", excerpt(n, (n // 2) * 4.0, SECONDS))
        for n in range(CALLS)
    ]
    produce(servers, side_by_side(messages))
    log = tmp_path_factory.mktemp("undisturbed") / "worker.log"
    with Nursery(servers, topics, "undisturbed", {}) as nursery:
        nursery.start(log)
        events = consume_all(servers, topics.events, all_ended(CALLS), timeout_s=PATIENCE_S)
    finals = said(consume_all(servers, topics.transcripts))
    assert len(finals) > 3 * CALLS
    return Calls(topics.chunks, finals, totals_of(events))


@pytest.fixture
def topics(calls: Calls, unique_topics: Callable[..., Topics]) -> Topics:
    """The same calls, outputs of the test's own."""
    return replace(unique_topics(partitions=2), chunks=calls.chunks)


@pytest.fixture
def start(broker: str, topics: Topics, tmp_path: Path) -> Iterator[Callable[[], Forked]]:
    """`start()` starts a member of one group that delivers exactly once."""
    numbers = itertools.count()
    with Nursery(broker, topics, topics.transcripts, SLOWLY) as nursery:
        yield lambda: nursery.start(tmp_path / f"worker-{next(numbers)}.log")


def totals_of(events: list[RawMessage]) -> dict[str, object]:
    """The totals of each session."""
    return {session: event["totals"] for session, event in ended(events).items()}


def await_finals(broker: str, topics: Topics, number: int) -> None:
    """Until so many are committed."""
    consume_all(
        broker, topics.transcripts, lambda found: len(found) >= number, timeout_s=PATIENCE_S
    )


def check(broker: str, topics: Topics, calls: Calls) -> None:
    """In the end readers see what the undisturbed worker said, and each of it once."""
    consume_all(broker, topics.events, all_ended(CALLS), timeout_s=PATIENCE_S)
    finals, events = (read_committed(broker, t) for t in (topics.transcripts, topics.events))
    assert repeats(finals) == repeats(events) == {}
    assert said(finals) == calls.finals
    assert totals_of(events) == calls.totals


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.storm
def test_ten_kills_repeat_and_lose_nothing(
    broker: str, topics: Topics, calls: Calls, start: Callable[[], Forked]
) -> None:
    rng = random.Random(7)
    for _ in range(KILLS):
        before = len(read_committed(broker, topics.transcripts))
        most = max(1, len(calls.finals) // (KILLS + 2))
        victim = start()
        await_finals(broker, topics, min(before + rng.randint(1, most), len(calls.finals)))
        victim.end()
    start()

    check(broker, topics, calls)


def freeze(frozen: Forked, other: Forked) -> None:
    """Stop a worker until the other has its partitions of both topics, and let it go on.

    It goes on as a member, or it ends, where it was just handing partitions over.
    """
    heard, knew = other.heard("assigned"), frozen.heard("lost")
    frozen.send(signal.SIGSTOP)
    wait_until("the other has them", lambda: other.heard("assigned") >= heard + 2, PATIENCE_S)
    frozen.send(signal.SIGCONT)
    wait_until(
        "the frozen one knows",
        lambda: frozen.heard("lost") >= knew + 2 or not frozen.running,
        PATIENCE_S,
    )


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.storm
def test_workers_that_freeze_until_others_have_their_calls_repeat_nothing_when_they_go_on(
    broker: str, topics: Topics, calls: Calls, start: Callable[[], Forked]
) -> None:
    pair = [start(), start()]
    for worker in pair:
        wait_until("both have joined", lambda w=worker: w.heard("assigned") >= 2, PATIENCE_S)
    for turn in range(FREEZES):
        before = len(read_committed(broker, topics.transcripts))
        await_finals(broker, topics, min(before + 1, len(calls.finals)))
        freeze(pair[turn % 2], pair[(turn + 1) % 2])
        if not pair[turn % 2].running:
            assert "did not end within" in pair[turn % 2].log()
            pair[turn % 2] = start()

    check(broker, topics, calls)


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.storm
def test_workers_that_come_and_go_in_order_repeat_and_lose_nothing(
    broker: str, topics: Topics, calls: Calls, start: Callable[[], Forked]
) -> None:
    stays = start()
    for _ in range(COMINGS):
        before = len(read_committed(broker, topics.transcripts))
        comes = start()
        wait_until("it has joined", lambda c=comes: c.heard("assigned") >= 2, PATIENCE_S)
        await_finals(broker, topics, min(before + 2, len(calls.finals)))
        comes.end(signal.SIGTERM)

    check(broker, topics, calls)
    assert stays.heard("lost") == 0
