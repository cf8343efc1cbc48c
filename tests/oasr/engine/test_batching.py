from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.batching import (
    Guards,
    first_fit,
    largest_preferred,
    least_padded_run,
    split_batch,
)
from oasr.engine.config import EngineConfig
from oasr.engine.request import Request
from tests.support.scheduling import Clock, ids, offline

FREE = Guards()


def requests_of(lengths: Sequence[int]) -> list[Request]:
    clock = Clock()
    return [offline(clock, f"r{place}", frames) for place, frames in enumerate(lengths)]


def places(batch: Sequence[Request]) -> list[int]:
    return [int(request.request_id[1:]) for request in batch]


def test_first_fit_takes_the_anchor_and_the_next_ones_in_order():
    assert places(first_fit(requests_of([50, 10, 90, 20]), 3, FREE)) == [0, 1, 2]


def test_the_bucket_guard_skips_lengths_too_far_from_the_rest():
    guards = Guards(length_bucket_ratio=0.5)

    assert places(first_fit(requests_of([100, 49, 50, 101, 80]), 4, guards)) == [0, 2, 4]


def test_the_pad_guard_skips_whoever_would_waste_too_much():
    guards = Guards(max_pad_ratio=1.5)

    # 10, 100: 200 / 110 > 1.5; 10, 12, 30: 90 / 52 > 1.5; 10, 12, 14: 42 / 36 ≤ 1.5.
    assert places(first_fit(requests_of([10, 100, 12, 30, 14]), 4, guards)) == [0, 2, 4]


def test_a_guard_is_met_at_its_very_bound():
    assert Guards(length_bucket_ratio=0.5).allow(50, 100, 150, 2)
    assert Guards(max_pad_ratio=1.5).allow(50, 150, 200, 2)
    assert Guards(max_run_frames=300).allow_run(50, 150, 200, 2)
    assert not Guards(max_run_frames=299).allow_run(50, 150, 200, 2)


def test_requests_without_a_frame_waste_nothing():
    guards = Guards(length_bucket_ratio=1.0, max_pad_ratio=1.0)

    assert places(first_fit(requests_of([0, 0, 0]), 3, guards)) == [0, 1, 2]


def test_guards_of_zero_are_off():
    lengths = [1, 3000, 1, 2]

    assert places(first_fit(requests_of(lengths), 4, Guards(0.0, 0.0))) == [0, 1, 2, 3]


def test_the_default_pad_guard_admits_a_usual_spread_and_rejects_a_pathological_one():
    guards = Guards.of(EngineConfig())

    usual = requests_of([110, 1010] * 16)
    assert len(first_fit(usual, 32, guards)) == 32
    seconds_1_and_30 = requests_of([98] * 31 + [2998])
    assert len(first_fit(seconds_1_and_30, 32, guards)) == 31


def test_a_run_holds_the_oldest_and_its_nearest_lengths():
    window = requests_of([50, 10, 55, 90, 48, 11])

    assert places(least_padded_run(window, 3, FREE)) == [0, 2, 4]


def test_a_run_is_returned_in_queue_order():
    window = requests_of([50, 52, 51, 53])

    assert places(least_padded_run(window, 4, FREE)) == [0, 1, 2, 3]


def test_equal_lengths_are_served_first_come_first():
    assert places(least_padded_run(requests_of([70] * 12), 4, FREE)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([50, 40, 40, 40], [0, 1]),  # equals below the anchor: the oldest of them
        ([50, 60, 60, 60], [0, 1]),  # above it: the oldest of them
        ([50, 60, 40], [0, 1]),  # equally far on both sides: the older one
        ([50, 40, 60], [0, 1]),
    ],
)
def test_of_runs_with_equal_padding_the_older_members_go(lengths: list[int], expected: list[int]):
    assert places(least_padded_run(requests_of(lengths), 2, FREE)) == expected


def test_a_run_narrows_until_the_guards_allow_it():
    window = requests_of([100, 300, 310, 105])

    assert places(least_padded_run(window, 4, Guards(length_bucket_ratio=0.9))) == [0, 3]
    assert places(least_padded_run(window, 4, Guards(max_run_frames=900))) == [0, 1, 3]


def test_the_oldest_alone_is_always_a_run():
    window = requests_of([1000, 10, 10])

    assert places(least_padded_run(window, 3, Guards(1.0, 1.0, max_run_frames=1))) == [0]


def test_first_fit_does_not_look_at_the_bound_on_frames():
    assert len(first_fit(requests_of([100] * 8), 8, Guards(max_run_frames=200))) == 8


@pytest.mark.parametrize(("limit", "expected"), [(0, 0), (3, 0), (4, 4), (7, 4), (8, 8), (100, 8)])
def test_the_largest_preferred_size_within_a_limit(limit: int, expected: int):
    assert largest_preferred([4, 8], limit) == expected


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [(1, [1]), (3, [3]), (4, [4]), (8, [8]), (11, [8, 3]), (12, [8, 4]), (20, [8, 8, 4])],
)
def test_a_batch_is_split_at_preferred_sizes(rows: int, sizes: list[int]):
    batch = requests_of(range(10, 10 + rows))
    config = EngineConfig(preferred_batch_size=[4, 8])

    forwards, _ = split_batch(batch, config)

    assert [len(forward) for forward in forwards] == sizes


def test_without_preferred_sizes_a_batch_is_split_evenly():
    forwards, _ = split_batch(requests_of([10] * 11), EngineConfig(max_batch_size=4))

    assert sorted(len(forward) for forward in forwards) == [3, 4, 4]


def test_a_batch_that_fits_one_forward_stays_as_it_is():
    batch = requests_of([30, 10, 20])

    assert split_batch(batch, EngineConfig()) == ([batch], None)


def test_an_empty_batch_has_no_forward():
    assert split_batch([], EngineConfig()) == ([], None)


def test_a_row_over_the_bound_on_frames_goes_alone():
    forwards, _ = split_batch(requests_of([500, 100, 100]), EngineConfig(max_batch_frames=200))

    assert [ids(forward) for forward in forwards] == [["r1", "r2"], ["r0"]]


def test_the_bound_on_frames_goes_before_preferred_sizes():
    config = EngineConfig(max_batch_frames=300, preferred_batch_size=[4])

    forwards, _ = split_batch(requests_of([100] * 4), config)

    assert sorted(len(forward) for forward in forwards) == [1, 3]


@settings(deadline=None, max_examples=150)
@given(
    lengths=st.lists(st.integers(0, 300), max_size=20),
    max_batch_size=st.integers(2, 8),
    preferred=st.sampled_from([None, [1], [2], [1, 2]]),
    max_frames=st.sampled_from([None, 1, 150, 600, 5000]),
)
def test_splitting_loses_no_row_and_keeps_every_bound(
    lengths: list[int], max_batch_size: int, preferred: list[int] | None, max_frames: int | None
):
    config = EngineConfig(
        max_batch_size=max_batch_size,
        preferred_batch_size=preferred,
        max_batch_frames=max_frames,
    )
    batch = requests_of(lengths)

    forwards, order = split_batch(batch, config)

    rows = [request for forward in forwards for request in forward]
    assert rows == (batch if order is None else [batch[place] for place in order])
    assert sorted(places(rows)) == list(range(len(batch)))
    for forward in forwards:
        costs = [request.num_frames for request in forward]
        assert 1 <= len(forward) <= max_batch_size
        assert order is None or costs == sorted(costs)
        if max_frames is not None:
            assert len(costs) == 1 or max(costs) * len(costs) <= max_frames
