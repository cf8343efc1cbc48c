"""Queues, admission of streams and the edge cases of the scheduler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oasr.engine.config import EngineConfig
from oasr.engine.request import RequestState
from oasr.engine.scheduler import Scheduler
from oasr.errors import IllegalTransition
from tests.support.scheduling import Clock, audio_of, ids, offline, stream


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, **options: object) -> Scheduler:
    return Scheduler(EngineConfig(**options), clock=clock)  # type: ignore[arg-type]


def test_the_scheduler_is_bookkeeping_and_imports_no_torch():
    program = (
        "import sys, oasr.engine.scheduler, oasr.engine.config, oasr.engine.request\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_empty_queues_make_an_empty_step(clock: Clock):
    output = make(clock).schedule()

    assert output.running_streams == output.newly_admitted == output.offline_batch == []


def test_requests_go_to_the_queue_of_their_kind(clock: Clock):
    scheduler = make(clock)

    scheduler.add_request(stream(clock, "live"))
    scheduler.add_request(offline(clock, "file-1"))
    scheduler.add_request(offline(clock, "file-2"))

    assert scheduler.num_waiting_streaming == 1
    assert scheduler.num_waiting_offline == 2
    assert scheduler.num_waiting == 3
    assert scheduler.num_running == 0
    assert scheduler.has_pending()


def test_one_step_serves_streams_and_files_together(clock: Clock):
    scheduler = make(clock)
    scheduler.add_request(stream(clock, "live"))
    scheduler.add_request(offline(clock, "file"))

    output = scheduler.schedule()

    assert ids(output.running_streams) == ids(output.newly_admitted) == ["live"]
    assert ids(output.offline_batch) == ["file"]
    assert scheduler.num_waiting == 0


def test_an_admitted_stream_runs_until_it_is_finished(clock: Clock):
    scheduler = make(clock)
    request = stream(clock, "live")
    scheduler.add_request(request)
    scheduler.schedule()

    again = scheduler.schedule()
    assert ids(again.running_streams) == ["live"]
    assert again.newly_admitted == []

    assert scheduler.finish_request("live") is request
    assert request.state is RequestState.FINISHED
    assert scheduler.schedule().running_streams == []
    assert not scheduler.has_pending()


def test_streams_run_in_order_of_admission_under_rising_stream_ids(clock: Clock):
    scheduler = make(clock, max_batch_size=2)
    for name in ("a", "b", "c"):
        scheduler.add_request(stream(clock, name))
    scheduler.schedule()
    scheduler.finish_request("a")

    output = scheduler.schedule()

    assert ids(output.running_streams) == ["b", "c"]
    assert [request.stream_id for request in output.running_streams] == [1, 2]


def test_a_full_pool_admits_nobody(clock: Clock):
    scheduler = make(clock, max_batch_size=1)
    scheduler.add_request(stream(clock, "a"))
    scheduler.add_request(stream(clock, "b"))
    scheduler.schedule()
    clock.advance(60.0)

    output = scheduler.schedule()

    assert output.newly_admitted == []
    assert ids(output.running_streams) == ["a"]
    assert scheduler.num_waiting_streaming == 1


@pytest.mark.parametrize("policy", ["fcfs", "window", "bucket", "sjf"])
@pytest.mark.parametrize("cohort", [True, False])
def test_a_freed_slot_is_filled_at_once(clock: Clock, policy: str, cohort: bool):
    scheduler = make(clock, max_batch_size=2, schedule_policy=policy, streaming_cohort_admit=cohort)
    for name in ("a", "b", "c"):
        scheduler.add_request(stream(clock, name))
    scheduler.schedule()

    scheduler.finish_request("b")

    assert ids(scheduler.schedule().newly_admitted) == ["c"]


@pytest.mark.parametrize(
    ("policy", "cohort", "order"),
    [
        ("window", True, ["short", "middle", "long"]),
        ("fcfs", True, ["short", "middle", "long"]),
        ("sjf", False, ["short", "middle", "long"]),
        ("window", False, ["long", "short", "middle"]),
        ("fcfs", False, ["long", "short", "middle"]),
    ],
)
def test_cohort_admission_and_sjf_sort_streams_by_length(
    clock: Clock, policy: str, cohort: bool, order: list[str]
):
    scheduler = make(clock, schedule_policy=policy, streaming_cohort_admit=cohort)
    for name, frames in (("long", 90), ("short", 10), ("middle", 40)):
        scheduler.add_request(stream(clock, name, frames))

    assert ids(scheduler.schedule().newly_admitted) == order


def test_a_streams_length_is_what_it_has_buffered_by_now(clock: Clock):
    scheduler = make(clock, max_batch_size=1)
    growing = stream(clock, "growing", 10)
    scheduler.add_request(growing)
    scheduler.add_request(stream(clock, "steady", 20))

    growing.push_audio(audio_of(30))

    assert ids(scheduler.schedule().newly_admitted) == ["steady"]


def test_streams_of_equal_length_are_admitted_first_come_first(clock: Clock):
    scheduler = make(clock, max_batch_size=2)
    for name in ("a", "b", "c"):
        scheduler.add_request(stream(clock, name, 10))

    assert ids(scheduler.schedule().newly_admitted) == ["a", "b"]


def test_offline_requests_leave_the_index_when_they_are_handed_out(clock: Clock):
    scheduler = make(clock)
    request = offline(clock, "file")
    scheduler.add_request(request)
    assert scheduler.find_request("file") is request

    scheduler.schedule()

    assert request.state is RequestState.RUNNING
    assert scheduler.find_request("file") is None
    assert scheduler.abort_request("file") is None
    assert not scheduler.has_pending()


def test_requests_are_found_wherever_they_are(clock: Clock):
    scheduler = make(clock, max_batch_size=1, preferred_batch_size=[1])
    requests = [stream(clock, "running"), stream(clock, "waiting"), offline(clock, "file")]
    scheduler.add_request(requests[0])
    scheduler.schedule()
    scheduler.add_request(requests[1])
    scheduler.add_request(requests[2])

    assert [scheduler.find_request(r.request_id) for r in requests] == requests
    assert scheduler.find_request("nobody") is None


def test_a_taken_id_is_refused_and_the_first_request_stays(clock: Clock):
    scheduler = make(clock)
    first = stream(clock, "twin")
    scheduler.add_request(first)

    with pytest.raises(ValueError, match="'twin' is in use"):
        scheduler.add_request(offline(clock, "twin"))
    scheduler.schedule()
    with pytest.raises(ValueError, match="'twin' is in use"):
        scheduler.add_request(stream(clock, "twin"))

    assert scheduler.find_request("twin") is first
    assert scheduler.num_waiting == 0


def test_an_id_may_be_used_again_once_its_request_is_gone(clock: Clock):
    scheduler = make(clock)
    scheduler.add_request(stream(clock, "call"))
    scheduler.abort_request("call")
    second = stream(clock, "call")
    scheduler.add_request(second)
    clock.advance(60.0)

    assert scheduler.schedule().newly_admitted == [second]


def test_a_request_that_was_served_cannot_be_queued_again(clock: Clock):
    scheduler = make(clock)
    request = offline(clock, "file")
    scheduler.add_request(request)
    scheduler.schedule()

    with pytest.raises(ValueError, match="running, not new"):
        scheduler.add_request(request)

    assert not scheduler.has_pending()


@pytest.mark.parametrize("request_id", ["unknown", "waiting", "file"])
def test_finishing_what_does_not_run_is_a_key_error_and_changes_nothing(
    clock: Clock, request_id: str
):
    scheduler = make(clock)
    scheduler.add_request(stream(clock, "waiting"))
    scheduler.add_request(offline(clock, "file"))

    with pytest.raises(KeyError):
        scheduler.finish_request(request_id)

    assert scheduler.num_waiting == 2
    assert scheduler.find_request("waiting") is not None


def test_aborting_an_unknown_id_returns_none(clock: Clock):
    assert make(clock).abort_request("unknown") is None


@pytest.mark.parametrize("where", ["waiting", "running", "parked", "file"])
def test_an_aborted_request_is_gone_from_everywhere(clock: Clock, where: str):
    scheduler = make(clock, preferred_batch_size=[1])
    request = offline(clock, "r") if where == "file" else stream(clock, "r")
    scheduler.add_request(request)
    if where in ("running", "parked"):
        scheduler.schedule()
    if where == "parked":
        scheduler.park("r")

    assert scheduler.abort_request("r") is request

    assert request.state is RequestState.ABORTED
    assert scheduler.find_request("r") is None
    assert not scheduler.has_pending()
    assert scheduler.num_waiting == scheduler.num_running == scheduler.num_parked == 0
    clock.advance(60.0)
    output = scheduler.schedule()
    assert output.running_streams == output.offline_batch == []
    assert scheduler.abort_request("r") is None


def test_a_parked_stream_gives_its_slot_back_and_keeps_its_id(clock: Clock):
    scheduler = make(clock, max_batch_size=1)
    idle, busy = stream(clock, "idle"), stream(clock, "busy")
    scheduler.add_request(idle)
    scheduler.schedule()
    scheduler.add_request(busy)

    assert scheduler.park("idle") is idle

    assert ids(scheduler.schedule().running_streams) == ["busy"]
    assert idle.state is RequestState.PARKED
    assert scheduler.find_request("idle") is idle
    assert scheduler.num_parked == 1
    with pytest.raises(ValueError, match="in use"):
        scheduler.add_request(stream(clock, "idle"))
    scheduler.finish_request("busy")
    assert scheduler.has_pending()


def test_an_unparked_stream_waits_as_if_it_had_just_arrived(clock: Clock):
    scheduler = make(clock, max_batch_size=1)
    idle = stream(clock, "idle")
    scheduler.add_request(idle)
    scheduler.schedule()
    scheduler.park("idle")
    clock.advance(5.0)
    scheduler.add_request(stream(clock, "earlier"))
    clock.advance(0.2)

    scheduler.unpark("idle")

    assert idle.waited_for == 0.0
    assert ids(scheduler.schedule().newly_admitted) == ["earlier"]
    scheduler.finish_request("earlier")
    assert ids(scheduler.schedule().newly_admitted) == ["idle"]
    assert idle.stream_id == 2


def test_only_running_streams_are_parked_and_only_parked_ones_unparked(clock: Clock):
    scheduler = make(clock)
    scheduler.add_request(stream(clock, "waiting"))

    with pytest.raises(KeyError):
        scheduler.park("waiting")
    with pytest.raises(KeyError):
        scheduler.unpark("waiting")

    assert scheduler.num_waiting_streaming == 1


def test_a_state_written_behind_the_schedulers_back_is_a_bug(clock: Clock):
    scheduler = make(clock)
    request = stream(clock, "r")
    scheduler.add_request(request)
    request.move_to(RequestState.ABORTED)

    with pytest.raises(IllegalTransition):
        scheduler.schedule()


def test_the_loop_of_the_specification_serves_everything(clock: Clock):
    scheduler = make(clock, max_batch_size=4, schedule_policy="sjf")
    for number in range(11):
        scheduler.add_request(offline(clock, f"file-{number}", frames=100 - number))
        scheduler.add_request(stream(clock, f"live-{number}"))

    batches: list[int] = []
    while scheduler.has_pending() and len(batches) < 20:
        output = scheduler.schedule()
        batches.append(len(output.offline_batch))
        for request in output.running_streams:
            scheduler.finish_request(request.request_id)

    assert batches == [4, 4, 3]
    assert not scheduler._index
