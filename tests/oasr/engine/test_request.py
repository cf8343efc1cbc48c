from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from oasr.engine.request import EDGES, Request, RequestOutput, RequestState, count_frames
from oasr.errors import IllegalTransition
from tests.support.scheduling import Clock

PATHS = {  # the shortest way into each state
    RequestState.WAITING: [],
    RequestState.RUNNING: [RequestState.RUNNING],
    RequestState.PARKED: [RequestState.RUNNING, RequestState.PARKED],
    RequestState.FINISHED: [RequestState.RUNNING, RequestState.FINISHED],
    RequestState.ABORTED: [RequestState.ABORTED],
}


def a_stream() -> Request:
    return Request(streaming=True)


def zeros(num_samples: int) -> np.ndarray:
    return np.zeros(num_samples, dtype=np.float32)


@pytest.mark.parametrize(("start", "end"), list(product(RequestState, RequestState)))
def test_a_request_moves_along_the_edges_and_nowhere_else(start: RequestState, end: RequestState):
    request = a_stream()
    for state in PATHS[start]:
        request.move_to(state)

    if end in EDGES[start]:
        request.move_to(end)
        assert request.state is end
    else:
        with pytest.raises(IllegalTransition, match=f"{start.value} -> {end.value}"):
            request.move_to(end)
        assert request.state is start


def test_the_edges_are_those_of_the_design():
    edges = {(start.name, end.name) for start, ends in EDGES.items() for end in ends}

    assert edges == {
        ("WAITING", "RUNNING"),
        ("WAITING", "ABORTED"),
        ("RUNNING", "FINISHED"),
        ("RUNNING", "ABORTED"),
        ("RUNNING", "PARKED"),
        ("PARKED", "WAITING"),
        ("PARKED", "ABORTED"),
    }


def test_the_state_has_no_other_writer():
    with pytest.raises(AttributeError):
        a_stream().state = RequestState.FINISHED  # type: ignore[misc]


@pytest.mark.parametrize(("given", "kept"), [(-(2**31), 0), (-1, 0), (0, 0), (3, 3)])
def test_a_negative_priority_is_clamped_to_the_most_urgent(given: int, kept: int):
    assert Request(streaming=True, priority=given).priority == kept


def test_ids_are_generated_and_distinct():
    assert len({a_stream().request_id for _ in range(100)}) == 100
    assert Request(streaming=True, request_id="call-7").request_id == "call-7"


def test_a_request_knows_how_long_it_has_waited():
    clock = Clock(now=100.0)
    request = Request(streaming=True, clock=clock)

    clock.advance(2.5)

    assert request.arrival_time == 100.0
    assert request.waited_for == 2.5


@pytest.mark.parametrize("num_samples", [0, 1, 399, 400, 401, 559, 560, 561, 16000, 48123])
def test_offline_frames_are_counted_exactly(num_samples: int):
    windows = [start for start in range(0, num_samples, 160) if start + 400 <= num_samples]

    assert Request(zeros(num_samples)).num_frames == len(windows)


def test_frames_are_counted_at_the_requests_own_rate():
    assert count_frames(8000, sample_rate=8000) == count_frames(16000, sample_rate=16000) == 98


def test_a_stream_costs_what_is_queued_so_far():
    request = a_stream()
    assert request.num_frames == 0
    assert not request.has_pending_audio

    request.push_audio(zeros(300))
    request.push_audio(zeros(260))
    assert request.num_frames == 2
    assert request.has_pending_audio

    assert [len(chunk) for chunk in request.take_audio()] == [300, 260]
    assert request.num_frames == 0
    assert not request.has_pending_audio


def test_an_empty_last_chunk_ends_a_stream_and_queues_nothing():
    request = a_stream()

    request.push_audio(zeros(0), is_last=True)

    assert request.audio_final
    assert not request.has_pending_audio


def test_audio_after_the_last_chunk_is_refused():
    request = a_stream()
    request.push_audio(zeros(10), is_last=True)

    with pytest.raises(ValueError, match="last chunk"):
        request.push_audio(zeros(10))


def test_an_offline_request_takes_no_chunks():
    with pytest.raises(ValueError, match="offline"):
        Request(zeros(400)).push_audio(zeros(10))


def test_an_offline_request_without_audio_is_refused():
    with pytest.raises(ValueError, match="needs its audio"):
        Request()


def test_a_stream_with_audio_at_birth_is_refused():
    with pytest.raises(ValueError, match="push_audio"):
        Request(zeros(400), streaming=True)


def test_an_output_is_unfinished_until_it_says_so():
    output = RequestOutput("r")

    assert not output.finished
    assert output.finish_reason is None
    assert output.tokens == output.token_frames == output.scores == ()
