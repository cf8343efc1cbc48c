"""Tenants take turns: nobody gets more than a share while others wait."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.config import POLICIES, EngineConfig
from oasr.engine.fair_queue import FairQueue
from oasr.engine.preemption import Preemption
from oasr.engine.request import Request
from oasr.engine.scheduler import Scheduler
from oasr.engine.shares import Shares
from tests.support.scheduling import Clock, audio_of, ids

TENANTS = ("a", "b", "c")
WAIT = 0.2


def utterance(clock: Clock, name: str, tenant: str, frames: int, priority: int = 0) -> Request:
    request = Request(audio_of(frames), name, priority=priority, clock=clock)
    request.tenant = tenant
    return request


def live(clock: Clock, name: str, tenant: str) -> Request:
    request = Request(request_id=name, streaming=True, clock=clock)
    request.tenant = tenant
    return request


class NaiveQueue:
    """The rules on one list: each pick looks at everybody."""

    def __init__(self, clock: Clock, held: dict[str, int]) -> None:
        self.clock, self.held = clock, held
        self.waiting: list[Request] = []
        self.given: dict[str, int] = {}

    def add(self, request: Request) -> None:
        others = {r.tenant for r in self.waiting}
        if not others:
            self.given = {}
        if request.tenant not in others:
            lowest = min((self.given[tenant] for tenant in others), default=0)
            self.given[request.tenant] = max(self.given.get(request.tenant, 0), lowest)
        self.waiting.append(request)

    def order(self, by_length: bool, bound: bool = True) -> list[Request]:
        left, given, held = list(self.waiting), dict(self.given), Counter(self.held)
        picked = []
        while left:
            heads = [self._own_next(left, tenant, by_length, bound) for tenant in given]
            request = min(
                (head for head in heads if head is not None),
                key=lambda r: (
                    not self._late(r, bound),
                    0 if self._late(r, bound) else r.priority,
                    held[r.tenant],
                    given[r.tenant],
                    r.arrival_time,
                    r.tenant,
                ),
            )
            left.remove(request)
            given[request.tenant] += 1 + request.num_frames
            held[request.tenant] += 1
            picked.append(request)
        return picked

    def _own_next(
        self, left: list[Request], tenant: str, by_length: bool, bound: bool
    ) -> Request | None:
        own = [r for r in left if r.tenant == tenant]
        late = sorted(
            (r for r in own if self._late(r, bound)), key=lambda r: (r.arrival_time, r.priority)
        )
        rest = sorted(own, key=lambda r: (r.priority, r.num_frames if by_length else 0))
        return next(iter(late or rest), None)

    def _late(self, request: Request, bound: bool) -> bool:
        return bound and request.arrival_time + WAIT <= self.clock.now


@settings(deadline=None, max_examples=150)
@given(
    by_length=st.booleans(),
    held=st.dictionaries(st.sampled_from(TENANTS), st.integers(0, 3)),
    operations=st.lists(
        st.one_of(
            st.tuples(
                st.just("add"),
                st.sampled_from(TENANTS),
                st.sampled_from([0, 10, 10, 25, 100]),
                st.integers(0, 2),
            ),
            st.tuples(st.just("take"), st.integers(1, 4)),
            st.tuples(st.just("drop"), st.integers(0, 20)),
            st.tuples(st.just("pass"), st.sampled_from([0.0, 0.05, 0.1, 0.2])),
        ),
        max_size=40,
    ),
)
def test_the_queue_is_the_one_that_looks_at_everybody(by_length, held, operations):
    clock = Clock()
    queue, naive = FairQueue(WAIT, by_length, held), NaiveQueue(clock, held)
    for number, (name, *arguments) in enumerate(operations):
        if name == "add":
            tenant, frames, priority = arguments
            request = utterance(clock, f"r{number}", tenant, frames, priority)
            queue.add(request)
            naive.add(request)
        elif name == "pass":
            clock.advance(*arguments)
        elif name == "drop" and naive.waiting:
            request = naive.waiting.pop(arguments[0] % len(naive.waiting))
            queue.remove(request)
        elif name == "take":
            taken = queue.head(arguments[0], clock.now)
            assert ids(taken) == ids(naive.order(by_length))[: arguments[0]]
            for request in taken:
                queue.take(request)
                naive.given[request.tenant] += 1 + request.num_frames
                naive.waiting.remove(request)
        count = len(naive.waiting)
        assert len(queue) == count
        assert ids(queue.in_turn(count, clock.now)) == ids(naive.order(by_length=False))
        assert ids(list(queue.candidates())) == ids(naive.order(by_length, bound=False))
        oldest = min((r.arrival_time for r in naive.waiting), default=float("inf"))
        assert queue.promote_at == pytest.approx(oldest + WAIT)
    assert queue._queues.keys() == {r.tenant for r in naive.waiting}


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=30)
@given(
    rows=st.integers(1, 6),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    backlog=st.lists(st.integers(20, 60), min_size=2, max_size=3),
    step_s=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_tenants_with_a_backlog_get_equal_work(policy, rows, lengths, backlog, step_s):
    clock = Clock()
    config = EngineConfig(
        schedule_policy=policy, max_batch_size=rows, tenant_fairness=True, max_wait_time=WAIT
    )
    scheduler = Scheduler(config, clock)
    for tenant, count in zip(TENANTS, backlog, strict=False):
        for n in range(count):
            frames = lengths[n % len(lengths)]
            scheduler.add_request(utterance(clock, f"{tenant}{n}", tenant, frames))
    given: Counter[str] = Counter()
    left = Counter(dict(zip(TENANTS, backlog, strict=False)))
    while all(left[tenant] for tenant, _ in zip(TENANTS, backlog, strict=False)):
        for request in scheduler.schedule().offline_batch:
            given[request.tenant] += 1 + request.num_frames
            left[request.tenant] -= 1
        clock.advance(step_s)
        most = 1 + max(lengths)
        if all(left[tenant] for tenant, _ in zip(TENANTS, backlog, strict=False)):
            spread = [given[tenant] for tenant, _ in zip(TENANTS, backlog, strict=False)]
            assert max(spread) - min(spread) <= 2 * most * rows


def test_one_slot_is_taken_in_turns_by_a_flood_and_a_trickle():
    clock = Clock()
    scheduler = Scheduler(EngineConfig(max_batch_size=1, tenant_fairness=True), clock)
    for n in range(100):
        scheduler.add_request(utterance(clock, f"a{n}", "a", 10))
    served = []
    for n in range(20):
        scheduler.add_request(utterance(clock, f"b{n}", "b", 10))
        served += [r.tenant for r in scheduler.schedule().offline_batch]
        served += [r.tenant for r in scheduler.schedule().offline_batch]

    assert Counter(served) == {"a": 20, "b": 20}


def test_the_overdue_come_before_others_whatever_their_tenant_has_had():
    clock = Clock()
    scheduler = Scheduler(
        EngineConfig(max_batch_size=1, tenant_fairness=True, max_wait_time=WAIT), clock
    )
    for n in range(3):
        scheduler.add_request(utterance(clock, f"a{n}", "a", 100))
    scheduler.schedule()
    clock.advance(WAIT)
    scheduler.add_request(utterance(clock, "b0", "b", 1))

    served = [ids(scheduler.schedule().offline_batch)[0] for _ in range(3)]

    assert served == ["a1", "a2", "b0"]


def test_without_the_option_tenants_change_nothing():
    clock = Clock()
    scheduler = Scheduler(EngineConfig(max_batch_size=2, schedule_policy="fcfs"), clock)
    for name, tenant in [("a0", "a"), ("a1", "a"), ("b0", "b")]:
        scheduler.add_request(utterance(clock, name, tenant, 10))

    assert ids(scheduler.schedule().offline_batch) == ["a0", "a1"]


@settings(deadline=None, max_examples=80)
@given(
    slots=st.integers(1, 5),
    streams=st.lists(st.sampled_from(TENANTS), min_size=2, max_size=12),
    busy=st.data(),
)
def test_no_tenant_has_a_slot_too_many_while_another_waits(slots, streams, busy):
    clock = Clock()
    config = EngineConfig(max_batch_size=slots, tenant_fairness=True, max_wait_time=WAIT)
    scheduler = Scheduler(config, clock)
    preemption = Preemption(scheduler, config, clock)
    requests = [live(clock, f"s{n}", tenant) for n, tenant in enumerate(streams)]
    for request in requests:
        if busy.draw(st.booleans()):  # the others come while these hold all the slots
            scheduler.add_request(request)
            preemption.mark_ready(request.request_id)
    last_served = dict.fromkeys(ids(requests), 0)
    bound = 3 * len(streams) + 6
    for step in range(1, 2 * bound):
        if step == 3:
            for request in requests:
                if scheduler.find_request(request.request_id) is None:
                    scheduler.add_request(request)
                    preemption.mark_ready(request.request_id)
        preemption.make_room()
        running = scheduler.schedule().running_streams
        last_served.update(dict.fromkeys(ids(running), step))
        held = Counter(r.tenant for r in running)
        waiting = {r.tenant for r in requests if r not in running and step >= 3}
        for tenant in waiting:
            assert max(held.values()) <= held[tenant] + 1
        for request in running:  # all have more, which came just now
            preemption.mark_served(request.request_id, has_more=True)
        clock.advance(WAIT / 2)
    assert min(last_served.values()) >= bound
    assert sum(held.values()) == min(slots, len(streams))


def test_marks_of_tenants_that_are_gone_do_not_add_up():
    shares = Shares()
    shares.join("old")
    for n in range(5_000):
        shares.join(f"t{n}")
        shares.charge(f"t{n}", 1)
        shares.charge("old", 1)
        shares.leave(f"t{n}")

    assert len(shares._marks) < 100
    shares.leave("old")
    assert not shares._marks
