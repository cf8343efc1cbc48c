"""The scheduler against the specification written as lists, on random histories."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.config import POLICIES, EngineConfig
from tests.support.scheduling import Pair, ids

choices = st.integers(0, 50)
frames = st.sampled_from([0, 1, 10, 10, 11, 25, 40, 100])
operations = st.one_of(
    st.tuples(st.just("add"), st.booleans(), frames, st.integers(-1, 2)),
    st.tuples(st.just("add"), st.booleans(), frames, st.just(0)),
    st.tuples(st.just("abort"), choices),
    st.tuples(st.just("finish"), choices),
    st.tuples(st.just("push"), choices, frames),
    st.tuples(st.just("park"), choices),
    st.tuples(st.just("unpark"), choices),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.05, 0.1, 0.2, 5.0])),
    st.tuples(st.just("schedule")),
)


@st.composite
def configs(draw: st.DrawFn, policy: str) -> EngineConfig:
    max_batch_size = draw(st.integers(1, 4))
    sizes = st.lists(st.integers(1, max_batch_size), min_size=1, max_size=2)
    return EngineConfig(
        schedule_policy=policy,  # type: ignore[arg-type]
        max_batch_size=max_batch_size,
        preferred_batch_size=draw(st.none() | sizes),
        length_window_factor=draw(st.integers(1, 3)),
        length_bucket_ratio=draw(st.sampled_from([0.0, 0.5, 1.0])),
        max_offline_pad_ratio=draw(st.sampled_from([0.0, 1.0, 1.5, 4.0])),
        max_batch_frames=draw(st.sampled_from([None, 20, 60, 200])),
        max_wait_time=draw(st.sampled_from([0.0, 0.2])),
        streaming_cohort_admit=draw(st.booleans()),
        tenant_fairness=draw(st.booleans()),  # of one tenant the queue is the specification's
    )


def apply(pair: Pair, operation: tuple) -> None:
    name, *arguments = operation
    if name == "pass":
        pair.clock.advance(*arguments)
    else:
        getattr(pair, name)(*arguments)


def drain(pair: Pair) -> None:
    """Serve what is left; whatever waits is overdue, so every step must serve somebody."""
    while pair.held:
        before = len(pair.held)
        pair.unpark(0)
        pair.clock.advance(60.0)
        pair.schedule()
        pair.finish(0)
        assert len(pair.held) < before


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_every_step_is_the_one_the_specification_takes(policy: str, data: st.DataObject):
    pair = Pair(data.draw(configs(policy)))

    for operation in data.draw(st.lists(operations, max_size=40)):
        apply(pair, operation)
        pair.check()
    drain(pair)

    every = Counter(f"r{number}" for number in range(pair.count))
    assert Counter(pair.served + pair.aborted) == every
    assert not pair.scheduler._index
    assert not pair.scheduler.has_pending()


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_step_with_overdue_requests_serves_the_oldest_of_them(policy: str, data: st.DataObject):
    pair = Pair(data.draw(configs(policy)))

    for operation in [*data.draw(st.lists(operations, max_size=40)), ("schedule",)]:
        if operation != ("schedule",):
            apply(pair, operation)
            continue
        late = {
            kind: sorted(pair.model.arrived[r.request_id] for r in queue if pair.model.overdue(r))
            for kind, queue in (("live", pair.model.streaming), ("file", pair.model.offline))
        }
        room = pair.model.config.max_batch_size - len(pair.model.running)
        output = pair.schedule()

        served = sorted(pair.model.arrived[i] for i in ids(output.newly_admitted))
        assert served[: len(late["live"])] == late["live"][: max(0, room)][: len(served)]
        assert bool(served) >= bool(late["live"] and room > 0)
        if late["file"]:
            assert min(pair.model.arrived[i] for i in ids(output.offline_batch)) == late["file"][0]
