"""How much of a deep queue each call looks at: a count, so no clock can blur it."""

from __future__ import annotations

import pytest

from oasr.engine.config import EngineConfig
from oasr.engine.request import Request
from oasr.engine.scheduler import Scheduler
from tests.support.scheduling import Clock, audio_of

DEEP = 3000
WINDOW = 32 * 4


class Watched(Request):
    """A request that notes when it is read or compared."""

    seen: set[str]

    def __init__(self, seen: set[str], name: str, streaming: bool, clock: Clock) -> None:
        audio = None if streaming else audio_of(100 + int(name) % 900)
        super().__init__(audio, name, streaming, clock=clock)
        object.__setattr__(self, "seen", seen)

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name not in ("seen", "request_id", "__class__"):
            self.seen.add(self.request_id)
        return value

    def __eq__(self, other: object) -> bool:
        self.seen.add(self.request_id)
        return self is other

    __hash__ = Request.__hash__


@pytest.fixture
def clock() -> Clock:
    return Clock()


def deep(clock: Clock, streaming: bool, cohort: bool = True) -> tuple[Scheduler, set[str]]:
    scheduler = Scheduler(EngineConfig(streaming_cohort_admit=cohort), clock=clock)
    seen: set[str] = set()
    for number in range(DEEP):
        clock.advance(1e-6)
        scheduler.add_request(Watched(seen, str(number), streaming, clock))
    seen.clear()
    return scheduler, seen


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("waited", [0.0, 60.0])
def test_an_abort_looks_at_no_other_request(clock: Clock, streaming: bool, waited: float):
    scheduler, seen = deep(clock, streaming)
    clock.advance(waited)
    scheduler.schedule()
    seen.clear()
    target = str(DEEP // 2)

    scheduler.abort_request(target)

    assert seen == {target}


def test_a_lookup_looks_at_no_other_request(clock: Clock):
    scheduler, seen = deep(clock, streaming=True)

    assert scheduler.find_request(str(DEEP // 2)) is not None
    assert seen == set()


def test_an_arrival_of_one_class_looks_at_the_last_request_alone(clock: Clock):
    scheduler, seen = deep(clock, streaming=True)

    scheduler.add_request(Watched(seen, str(DEEP), True, clock))

    assert seen == {str(DEEP - 1), str(DEEP)}


@pytest.mark.parametrize("waited", [0.0, 60.0])
def test_a_window_selection_looks_at_the_window_alone(clock: Clock, waited: float):
    scheduler, seen = deep(clock, streaming=False)
    clock.advance(waited)

    assert len(scheduler.schedule().offline_batch) == 32
    assert len(seen) <= WINDOW


@pytest.mark.parametrize("cohort", [True, False])
def test_admitting_overdue_streams_looks_at_those_admitted_alone(clock: Clock, cohort: bool):
    scheduler, seen = deep(clock, streaming=True, cohort=cohort)
    clock.advance(60.0)
    scheduler.schedule()
    scheduler.finish_request("0")
    seen.clear()

    assert len(scheduler.schedule().newly_admitted) == 1
    assert seen == {"32"}


def test_admitting_the_shortest_streams_looks_at_few_others(clock: Clock):
    scheduler, seen = deep(clock, streaming=True)

    assert len(scheduler.schedule().newly_admitted) == 32
    assert len(seen) <= 34
