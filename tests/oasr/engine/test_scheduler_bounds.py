"""Policies, priorities, the bound on waiting and preferred sizes, one sentence a test."""

from __future__ import annotations

import pytest

from oasr.engine.config import POLICIES, EngineConfig
from oasr.engine.scheduler import Scheduler
from tests.support.scheduling import Clock, ids, offline, stream

every_policy = pytest.mark.parametrize("policy", POLICIES)
KINDS = {"live": stream, "file": offline}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, **options: object) -> Scheduler:
    return Scheduler(EngineConfig(**options), clock=clock)  # type: ignore[arg-type]


def served(scheduler: Scheduler, kind: str) -> list[str]:
    """The ids that the next step takes out of one queue; streams finish at once."""
    output = scheduler.schedule()
    for request in output.running_streams:
        scheduler.finish_request(request.request_id)
    return ids(output.newly_admitted if kind == "live" else output.offline_batch)


def fill(scheduler: Scheduler, clock: Clock, lengths: list[int]) -> None:
    for number, frames in enumerate(lengths):
        scheduler.add_request(offline(clock, f"r{number}", frames))


def test_fcfs_serves_in_order_of_arrival_whatever_the_lengths(clock: Clock):
    scheduler = make(clock, schedule_policy="fcfs", max_batch_size=2, length_bucket_ratio=0.9)
    fill(scheduler, clock, [500, 10, 300])

    assert served(scheduler, "file") == ["r0", "r1"]
    assert served(scheduler, "file") == ["r2"]


def test_bucket_fits_peers_from_the_whole_queue_to_the_oldest(clock: Clock):
    scheduler = make(clock, schedule_policy="bucket", max_batch_size=3, length_bucket_ratio=0.5)
    fill(scheduler, clock, [100, 10, 90, 12, 110, 11])

    assert served(scheduler, "file") == ["r0", "r2", "r4"]
    assert served(scheduler, "file") == ["r1", "r3", "r5"]


def test_sjf_serves_the_shortest_of_the_best_class(clock: Clock):
    scheduler = make(clock, schedule_policy="sjf", max_batch_size=2)
    scheduler.add_request(offline(clock, "deferred", 1, priority=1))
    fill(scheduler, clock, [300, 100, 200])

    assert served(scheduler, "file") == ["r1", "r2"]
    assert served(scheduler, "file") == ["r0", "deferred"]


def test_the_window_ships_the_oldest_with_its_nearest_lengths(clock: Clock):
    scheduler = make(clock, max_batch_size=2, length_window_factor=2)
    fill(scheduler, clock, [100, 10, 12, 101])

    assert served(scheduler, "file") == ["r0", "r3"]
    assert served(scheduler, "file") == ["r1", "r2"]


def test_the_window_looks_no_further_than_factor_batches(clock: Clock):
    scheduler = make(clock, max_batch_size=2, length_window_factor=2)
    fill(scheduler, clock, [100, 10, 12, 90, 100])

    assert served(scheduler, "file") == ["r0", "r3"]


def test_the_window_is_first_come_first_served_below_capacity(clock: Clock):
    scheduler = make(clock, max_batch_size=8)
    fill(scheduler, clock, [500, 30, 250, 40])

    assert served(scheduler, "file") == ["r0", "r1", "r2", "r3"]


def test_the_window_holds_one_class_at_a_time(clock: Clock):
    scheduler = make(clock, max_batch_size=4)
    scheduler.add_request(offline(clock, "deferred", 100, priority=1))
    scheduler.add_request(offline(clock, "urgent", 100))

    assert served(scheduler, "file") == ["urgent"]
    assert served(scheduler, "file") == ["deferred"]


def test_the_window_takes_in_the_overdue_of_any_class(clock: Clock):
    scheduler = make(clock, max_batch_size=4)
    scheduler.add_request(offline(clock, "overdue", 100, priority=2))
    clock.advance(0.2)
    scheduler.add_request(offline(clock, "middle", 100, priority=1))
    scheduler.add_request(offline(clock, "urgent", 100))

    assert served(scheduler, "file") == ["overdue", "urgent"]


def test_the_window_keeps_its_guards_when_the_oldest_is_overdue(clock: Clock):
    scheduler = make(clock, max_batch_size=4, length_bucket_ratio=0.5)
    fill(scheduler, clock, [100, 10, 90, 11])
    clock.advance(1.0)

    assert served(scheduler, "file") == ["r0", "r2"]


def test_max_batch_frames_bounds_the_windows_runs(clock: Clock):
    scheduler = make(clock, max_batch_size=4, max_batch_frames=250)
    fill(scheduler, clock, [100, 100, 100, 100])

    assert served(scheduler, "file") == ["r0", "r1"]


@pytest.mark.parametrize("policy", ["fcfs", "bucket", "sjf"])
def test_the_other_policies_leave_max_batch_frames_to_the_split(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=4, max_batch_frames=250)
    fill(scheduler, clock, [100, 100, 100, 100])

    batch = scheduler.schedule().offline_batch
    forwards, order = scheduler.split_offline_batch(batch)

    assert [len(forward) for forward in forwards] == [2, 2]
    assert order == [0, 1, 2, 3]


@every_policy
def test_without_guards_a_batch_is_capped_by_its_size_alone(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=3, max_offline_pad_ratio=0.0)
    fill(scheduler, clock, [1, 3000, 2, 1, 2500])

    assert len(served(scheduler, "file")) == 3


@pytest.mark.parametrize("policy", ["bucket", "sjf"])
def test_a_forced_flush_fills_the_batch_by_age_past_the_guards(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=3, length_bucket_ratio=0.9)
    fill(scheduler, clock, [3000, 10, 500, 11])
    clock.advance(0.2)

    assert served(scheduler, "file") == ["r0", "r1", "r2"]


@pytest.mark.parametrize("policy", ["bucket", "sjf"])
def test_a_flush_with_one_overdue_request_is_filled_from_the_head(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=3)
    scheduler.add_request(offline(clock, "old", 3000, priority=1))
    clock.advance(0.2)
    fill(scheduler, clock, [70, 60, 50])

    assert served(scheduler, "file") == ["old", "r0", "r1"]
    assert served(scheduler, "file") == ["r2"]


@pytest.mark.parametrize("policy", ["bucket", "sjf"])
def test_no_flush_comes_before_the_bound(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=3, length_bucket_ratio=0.9)
    fill(scheduler, clock, [10, 3000, 11])
    clock.advance(0.199)

    assert served(scheduler, "file") == ["r0", "r2"]


@every_policy
@every_kind
def test_better_classes_go_first_and_a_class_is_first_come_first_served(
    clock: Clock, policy: str, kind: str
):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=1)
    for name, priority in (("c", 2), ("b1", 1), ("a1", 0), ("b2", 1), ("a2", 0), ("a3", -7)):
        scheduler.add_request(KINDS[kind](clock, name, 50, priority))

    order = [name for _ in range(6) for name in served(scheduler, kind)]

    assert order == ["a1", "a2", "a3", "b1", "b2", "c"]


@every_policy
@every_kind
@pytest.mark.parametrize("cohort", [True, False])
def test_the_bound_outranks_priority_and_length(clock: Clock, policy: str, kind: str, cohort: bool):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=1, streaming_cohort_admit=cohort)
    scheduler.add_request(KINDS[kind](clock, "deferred", 900, 3))
    clock.advance(0.1)
    scheduler.add_request(KINDS[kind](clock, "later", 900, 2))
    clock.advance(0.1)
    scheduler.add_request(KINDS[kind](clock, "urgent", 10, 0))

    assert served(scheduler, kind) == ["deferred"]
    clock.advance(0.1)
    assert served(scheduler, kind) == ["later"]
    assert served(scheduler, kind) == ["urgent"]


@every_policy
@every_kind
def test_a_deferred_request_is_served_under_steady_better_load(
    clock: Clock, policy: str, kind: str
):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=1)
    scheduler.add_request(KINDS[kind](clock, "deferred", 500, 1))
    waited = None
    for step in range(200):
        scheduler.add_request(KINDS[kind](clock, f"better-{step}", 10, 0))
        if "deferred" in served(scheduler, kind):
            waited = clock.now
            break
        clock.advance(0.05)

    assert waited is not None
    assert waited <= 0.2 + 2 * 0.05


@every_kind
def test_a_backlogged_stream_is_not_overtaken_for_ever_by_shorter_ones(clock: Clock, kind: str):
    scheduler = make(clock, max_batch_size=1, schedule_policy="sjf")
    scheduler.add_request(KINDS[kind](clock, "long", 3000))
    for step in range(6):
        scheduler.add_request(KINDS[kind](clock, f"short-{step}", 10))
        if "long" in served(scheduler, kind):
            break
        clock.advance(0.05)

    assert clock.now == pytest.approx(0.2)


@every_policy
@every_kind
def test_of_equally_old_overdue_requests_the_better_class_goes_first(
    clock: Clock, policy: str, kind: str
):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=1)
    scheduler.add_request(KINDS[kind](clock, "deferred", 50, 1))
    scheduler.add_request(KINDS[kind](clock, "urgent", 50, 0))
    clock.advance(5.0)

    assert served(scheduler, kind) == ["urgent"]


@every_policy
@every_kind
def test_age_counts_from_arrival_and_not_from_queueing(clock: Clock, policy: str, kind: str):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=1)
    old = KINDS[kind](clock, "old", 50)
    clock.advance(0.1)
    scheduler.add_request(KINDS[kind](clock, "young", 50))
    scheduler.add_request(old)
    clock.advance(1.0)

    assert served(scheduler, kind) == ["old"]


@every_policy
@pytest.mark.parametrize("overdue_steps", [1, 3])
def test_an_overdue_queue_keeps_its_order_when_a_batch_leaves_it(
    clock: Clock, policy: str, overdue_steps: int
):
    scheduler = make(clock, schedule_policy=policy, max_batch_size=2)
    fill(scheduler, clock, [100, 10, 12, 101, 50, 60, 11, 90])
    clock.advance(0.2)

    for _ in range(overdue_steps):
        before = ids(list(scheduler._offline_waiting))
        taken = served(scheduler, "file")
        after = ids(list(scheduler._offline_waiting))

        assert after == [name for name in before if name not in taken]


def test_streams_wait_for_a_preferred_pool_size(clock: Clock):
    scheduler = make(clock, preferred_batch_size=[4, 8])
    for number in range(3):
        scheduler.add_request(stream(clock, f"r{number}"))
    assert scheduler.schedule().newly_admitted == []

    scheduler.add_request(stream(clock, "r3"))
    scheduler.add_request(stream(clock, "r4"))

    assert len(scheduler.schedule().newly_admitted) == 4
    assert scheduler.num_waiting_streaming == 1


def test_running_streams_count_towards_the_preferred_size(clock: Clock):
    scheduler = make(clock, preferred_batch_size=[4, 8])
    for number in range(4):
        scheduler.add_request(stream(clock, f"r{number}"))
    scheduler.schedule()
    scheduler.finish_request("r0")
    scheduler.add_request(stream(clock, "r4"))

    assert ids(scheduler.schedule().newly_admitted) == ["r4"]


def test_an_overdue_stream_is_admitted_at_any_size_with_all_who_wait(clock: Clock):
    scheduler = make(clock, preferred_batch_size=[4])
    scheduler.add_request(stream(clock, "old"))
    clock.advance(0.2)
    scheduler.add_request(stream(clock, "new"))

    assert ids(scheduler.schedule().newly_admitted) == ["old", "new"]


def test_the_largest_preferred_size_is_the_ceiling_until_the_bound(clock: Clock):
    scheduler = make(clock, preferred_batch_size=[2], max_batch_size=8)
    for number in range(5):
        scheduler.add_request(stream(clock, f"r{number}"))

    assert len(scheduler.schedule().newly_admitted) == 2
    assert scheduler.schedule().newly_admitted == []
    clock.advance(0.2)
    assert len(scheduler.schedule().newly_admitted) == 3


@every_policy
def test_offline_batches_wait_for_a_preferred_size(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, preferred_batch_size=[4, 8])
    fill(scheduler, clock, [50] * 3)

    assert served(scheduler, "file") == []
    assert ids(list(scheduler._offline_waiting)) == ["r0", "r1", "r2"]

    clock.advance(0.2)
    assert served(scheduler, "file") == ["r0", "r1", "r2"]


@every_policy
def test_offline_batches_are_trimmed_to_a_preferred_size(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, preferred_batch_size=[4])
    fill(scheduler, clock, [50] * 6)

    assert served(scheduler, "file") == ["r0", "r1", "r2", "r3"]
    assert ids(list(scheduler._offline_waiting)) == ["r4", "r5"]


@every_policy
def test_overdue_batches_are_not_trimmed(clock: Clock, policy: str):
    scheduler = make(clock, schedule_policy=policy, preferred_batch_size=[4])
    fill(scheduler, clock, [50] * 6)
    clock.advance(0.2)

    assert len(served(scheduler, "file")) == 6


def test_a_bucket_below_every_preferred_size_leaves_the_queue_as_it_was(clock: Clock):
    scheduler = make(
        clock, schedule_policy="bucket", preferred_batch_size=[4], length_bucket_ratio=0.5
    )
    fill(scheduler, clock, [100, 10, 90])

    assert served(scheduler, "file") == []
    assert ids(list(scheduler._offline_waiting)) == ["r0", "r1", "r2"]


def test_a_trimmed_bucket_goes_back_to_the_head(clock: Clock):
    scheduler = make(
        clock, schedule_policy="bucket", preferred_batch_size=[2], length_bucket_ratio=0.5
    )
    fill(scheduler, clock, [100, 10, 90, 110])

    assert served(scheduler, "file") == ["r0", "r2"]
    assert ids(list(scheduler._offline_waiting)) == ["r3", "r1"]


def test_what_a_window_run_leaves_over_keeps_its_place(clock: Clock):
    scheduler = make(clock, max_batch_size=3, preferred_batch_size=[2], length_window_factor=2)
    fill(scheduler, clock, [100, 10, 99, 98, 11])

    assert served(scheduler, "file") == ["r0", "r2"]
    assert ids(list(scheduler._offline_waiting)) == ["r1", "r3", "r4"]


def test_splits_snap_to_the_preferred_sizes(clock: Clock):
    scheduler = make(clock, preferred_batch_size=[4, 8])
    fill(scheduler, clock, list(range(20, 31)))
    clock.advance(0.2)

    forwards, order = scheduler.split_offline_batch(scheduler.schedule().offline_batch)

    assert [len(forward) for forward in forwards] == [8, 3]
    assert order == list(range(11))
