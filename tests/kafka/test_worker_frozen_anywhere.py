"""A worker that stops anywhere for longer than all time-outs, and goes on, repeats nothing.

And it moves no offset back. Each test is one place in the code, on a real broker: the worker stops
itself there, another has its calls and tells more of them, then it goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.support.chaos_oracle import moved_back_in
from tests.support.chaos_watch import Tail, Watch
from tests.support.exactly_once import read_committed
from tests.support.kafka import Topics, wait_until
from tests.support.nursery import Forked, Nursery
from tests.support.stop_points import COMMIT_POINTS, REVOKE_POINTS, TRANSACTION_POINTS
from tests.support.undisturbed import (
    PARTITIONS,
    PATIENCE_S,
    SLOWLY,
    Calls,
    await_finals,
    calls_and_what_is_said,
    check_said,
)
from worker.devkafka import Broker

pytestmark = [pytest.mark.slow, pytest.mark.storm, pytest.mark.timeout(900)]

CALLS = 6
SECONDS = 16.0
MORE = 2  # finals that the heir tells before the frozen one goes on


@pytest.fixture(scope="module")
def calls(real_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    folder = tmp_path_factory.mktemp("undisturbed")
    found = calls_and_what_is_said(real_broker, folder, CALLS, SECONDS)
    assert len(found.finals) > 2 * CALLS
    return found


@pytest.fixture
def topics(calls: Calls, unique_topics: Callable[..., Topics]) -> Topics:
    """The same calls, outputs of the test's own."""
    return replace(unique_topics(partitions=PARTITIONS), chunks=calls.chunks)


@pytest.fixture
def watch(broker: str, topics: Topics) -> Iterator[Watch]:
    """Looks at what the group commits; its name is that of the topic of finals."""
    finals = Tail(broker, topics.transcripts, PARTITIONS)
    places = [TopicPartition(topics.chunks, n, 0) for n in range(PARTITIONS)]
    with Watch(broker, topics.transcripts, places, finals) as looking:
        yield looking
    finals.close()


class Scene:
    """A worker that will stop, and the one that inherits."""

    def __init__(self, nursery: Nursery, folder: Path, point: str) -> None:
        self._nursery, self._folder = nursery, folder
        self.armed = folder / "armed"
        self.frozen = nursery.start(folder / "frozen.log", (point, self.armed))

    def heir(self) -> Forked:
        return self._nursery.start(self._folder / "heir.log")

    def await_stop(self) -> None:
        wait_until("it has stopped there", lambda: self.frozen.stopped, PATIENCE_S)

    def wake(self) -> None:
        """Until it is a member again, or has ended; a worker may end that was handing over."""
        heard = self.frozen.heard("assigned")
        self.frozen.send(signal.SIGCONT)
        wait_until(
            "it is a member again",
            lambda: self.frozen.heard("assigned") > heard or not self.frozen.running,
            PATIENCE_S,
        )


def freeze_and_wake(scene: Scene, broker: str, topics: Topics, by_revocation: bool) -> None:
    """It stops after its first final, the heir tells some more, then it goes on."""
    await_finals(broker, topics, 1)
    scene.armed.touch()
    if by_revocation:
        scene.heir()
        scene.await_stop()
    else:
        scene.await_stop()
        scene.heir()
    # Of an open transaction the brokers show nothing, and nothing behind it, until it is over.
    told = len(read_committed(broker, topics.transcripts))
    await_finals(broker, topics, told + MORE)
    scene.wake()


@pytest.mark.parametrize("point", [*TRANSACTION_POINTS, *REVOKE_POINTS])
def test_a_worker_that_freezes_there_and_goes_on_repeats_and_overwrites_nothing(
    broker: str, topics: Topics, calls: Calls, watch: Watch, tmp_path: Path, point: str
) -> None:
    with Nursery(broker, topics, topics.transcripts, SLOWLY) as nursery:
        scene = Scene(nursery, tmp_path, point)
        freeze_and_wake(scene, broker, topics, point in REVOKE_POINTS)

        check_said(broker, topics, calls)
        assert scene.frozen.running or "did not end within" in scene.frozen.log()
    assert len(watch.sightings) > 1
    assert moved_back_in(watch.sightings) == []


@pytest.mark.parametrize("point", [*COMMIT_POINTS, *REVOKE_POINTS])
def test_at_least_once_it_overwrites_no_offset_and_tells_repeats_under_their_ids(
    broker: str, topics: Topics, calls: Calls, watch: Watch, tmp_path: Path, point: str
) -> None:
    settings = {**SLOWLY, "OASR_DELIVERY__MODE": "at-least-once"}
    with Nursery(broker, topics, topics.transcripts, settings) as nursery:
        scene = Scene(nursery, tmp_path, point)
        freeze_and_wake(scene, broker, topics, point in REVOKE_POINTS)

        check_said(broker, topics, calls, exactly_once=False)
        assert scene.frozen.running
    assert len(watch.sightings) > 1
    assert moved_back_in(watch.sightings) == []
