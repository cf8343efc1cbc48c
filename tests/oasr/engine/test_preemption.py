"""Who gives way to whom between two decisions of the scheduler."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.config import EngineConfig
from oasr.engine.preemption import Preemption
from oasr.engine.request import Request, RequestState
from oasr.engine.scheduler import Scheduler
from tests.support.scheduling import Clock, ids, stream


class Pool:
    """A scheduler whose running streams have something to decode when told so."""

    def __init__(self, slots: int, **options: object) -> None:
        self.clock = Clock()
        self.config = EngineConfig(max_batch_size=slots, **options)  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.config, self.clock)
        self.preemption = Preemption(self.scheduler, self.config, self.clock)

    def open(self, name: str, priority: int = 0, is_ready: bool = True) -> Request:
        request = stream(self.clock, name, priority=priority)
        self.scheduler.add_request(request)
        if is_ready:
            self.preemption.mark_ready(name)
        return request

    def hear(self, request: Request) -> None:
        self.preemption.mark_ready(request.request_id)
        if request.state is RequestState.PARKED:
            self.scheduler.unpark(request.request_id)

    def step(self, more: tuple[str, ...] = ()) -> list[str]:
        """The streams that decode something; those in `more` have something left then."""
        self.preemption.make_room()
        running = self.scheduler.schedule().running_streams
        served = [r for r in ids(running) if r in self.preemption.ready]
        for request in running:
            self.preemption.mark_served(request.request_id, request.request_id in more)
        return served


def test_idle_streams_give_way_the_worst_class_first():
    pool = Pool(2)
    best, worst = pool.open("best", 0), pool.open("worst", 1)
    pool.step()

    pool.open("new", 1)

    assert pool.step() == ["new"]
    assert (best.state, worst.state) == (RequestState.RUNNING, RequestState.PARKED)


def test_nobody_gives_way_for_streams_with_nothing_to_decode():
    pool = Pool(1)
    idle = pool.open("idle")
    pool.step()

    pool.open("new", is_ready=False)
    pool.step()

    assert idle.state is RequestState.RUNNING


def test_a_busy_stream_gives_way_to_a_better_class_and_waits_its_turn():
    pool = Pool(1)
    low = pool.open("low", 1)
    pool.step(more=("low",))

    high = pool.open("high", 0)

    assert pool.step() == ["high"]
    assert low.state is RequestState.WAITING
    pool.clock.advance(0.01)
    assert pool.step() == ["low"]
    assert high.state is RequestState.PARKED


@pytest.mark.parametrize("priority", [1, 2])
def test_a_busy_stream_does_not_give_way_to_its_own_or_a_worse_class(priority):
    pool = Pool(1)
    pool.open("busy", 1)
    pool.step(more=("busy",))

    pool.open("new", priority)

    assert pool.step(more=("busy",)) == ["busy"]


def test_a_busy_stream_gives_way_to_an_overdue_one_of_any_class():
    pool = Pool(1, max_wait_time=0.2)
    pool.open("busy", 0)
    pool.open("late", 5)
    pool.step(more=("busy",))
    pool.clock.advance(0.3)
    pool.preemption.mark_served("busy", has_more=True)

    assert pool.step() == ["late"]


def test_an_overdue_busy_stream_gives_way_to_nobody():
    pool = Pool(1, max_wait_time=0.2)
    pool.open("busy", 1)
    pool.step(more=("busy",))
    pool.open("urgent", 0)
    pool.clock.advance(0.2)

    assert pool.step() == ["busy"]


def test_a_gone_stream_is_not_waited_for():
    pool = Pool(1)
    idle = pool.open("idle")
    pool.step()
    pool.open("gone")
    pool.scheduler.abort_request("gone")
    pool.preemption.mark_served("gone", has_more=False)
    pool.open("quiet", is_ready=False)

    pool.step()

    assert idle.state is RequestState.RUNNING


@settings(deadline=None, max_examples=80)
@given(
    slots=st.integers(1, 4),
    classes=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    max_wait_steps=st.sampled_from([1, 3]),
    cohort=st.booleans(),
)
def test_streams_that_always_have_more_are_all_served_again_and_again(
    slots, classes, max_wait_steps, cohort
):
    """The worst case: nobody is ever idle, so every slot must be taken from somebody."""
    pool = Pool(slots, max_wait_time=float(max_wait_steps), streaming_cohort_admit=cohort)
    requests = [pool.open(f"s{n}", priority) for n, priority in enumerate(classes)]
    names = tuple(ids(requests))
    last_served = dict.fromkeys(names, 0)
    # A wait until it is overdue, then `slots` of the older ones come first in each step.
    bound = max_wait_steps + len(names) // slots + 2
    for step in range(1, 4 * bound):
        last_served.update(dict.fromkeys(pool.step(more=names), step))
        assert min(last_served.values()) >= step - bound
        pool.clock.advance(1.0)
        for request in pool.scheduler.running_streams:  # what it has next came just now
            pool.preemption.mark_served(request.request_id, has_more=True)


@settings(deadline=None, max_examples=80)
@given(
    slots=st.integers(1, 3),
    classes=st.lists(st.integers(0, 2), min_size=2, max_size=7),
    passes=st.lists(st.sampled_from([0.0, 0.1, 0.3]), min_size=1, max_size=20),
    data=st.data(),
)
def test_no_overdue_stream_is_parked(slots, classes, passes, data):
    pool = Pool(slots, max_wait_time=0.2)
    requests = [pool.open(f"s{n}", priority) for n, priority in enumerate(classes)]
    for passed_s in passes:
        pool.clock.advance(passed_s)
        for request in data.draw(st.lists(st.sampled_from(requests), unique=True)):
            pool.hear(request)
        since = pool.preemption._ready
        late = [
            r
            for r in pool.scheduler.running_streams
            if r.request_id in since and pool.clock.now >= since[r.request_id] + 0.2
        ]
        pool.preemption.make_room()

        assert all(request.state is RequestState.RUNNING for request in late)
        for request in pool.scheduler.schedule().running_streams:
            pool.preemption.mark_served(request.request_id, has_more=data.draw(st.booleans()))
