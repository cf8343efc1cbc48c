"""Whatever happens to workers, readers of committed records see each final and event once."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.exactly_once import read_committed
from tests.support.kafka import Topics, wait_until
from tests.support.nursery import Forked, Nursery
from tests.support.undisturbed import (
    PATIENCE_S,
    SLOWLY,
    Calls,
    await_finals,
    calls_and_what_is_said,
    check_said,
)
from worker.devkafka import Broker

CALLS = 8
SECONDS = 16.0
KILLS = 10
FREEZES = 4
COMINGS = 3


@pytest.fixture(scope="module")
def calls(real_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    folder = tmp_path_factory.mktemp("undisturbed")
    found = calls_and_what_is_said(real_broker, folder, CALLS, SECONDS)
    assert len(found.finals) > 3 * CALLS
    return found


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

    check_said(broker, topics, calls)


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

    check_said(broker, topics, calls)


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

    check_said(broker, topics, calls)
    assert stays.heard("lost") == 0
