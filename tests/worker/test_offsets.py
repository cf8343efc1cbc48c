"""The watermark of a partition is its lowest open offset, whatever the order of the work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.offsets import OffsetTracker


def test_a_fresh_tracker_commits_where_it_was_assigned():
    tracker = OffsetTracker(17)

    assert (tracker.watermark, tracker.highest, tracker.oldest_open()) == (17, None, None)
    assert tracker.open_offsets() == ()


def test_the_watermark_stays_at_the_oldest_open_message():
    tracker = OffsetTracker(0)
    for offset in range(4):
        tracker.received(offset)

    tracker.done(1)
    tracker.done(3)

    assert tracker.watermark == 0
    assert tracker.open_offsets() == (0, 2)
    assert tracker.is_open(2)
    assert not tracker.is_open(3)


def test_gaps_in_the_log_do_not_hold_the_watermark():
    tracker = OffsetTracker(10)
    for offset in (12, 14, 90):
        tracker.received(offset)
        tracker.done(offset)

    assert tracker.watermark == 91


def test_an_offset_that_is_done_twice_is_reported_once():
    tracker = OffsetTracker(0)
    tracker.received(0)

    assert tracker.done(0) is True
    assert tracker.done(0) is False
    assert tracker.done(5) is False
    assert tracker.watermark == 1


@pytest.mark.parametrize("again", [4, 5])
def test_an_offset_that_does_not_rise_is_refused(again):
    tracker = OffsetTracker(3)
    tracker.received(5)

    with pytest.raises(ValueError, match="read again"):
        tracker.received(again)


def test_an_offset_below_the_assigned_position_is_refused():
    with pytest.raises(ValueError, match="expected at least 3"):
        OffsetTracker(3).received(2)


@settings(deadline=None, max_examples=200)
@given(
    position=st.integers(0, 2**62),
    steps=st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 30)), max_size=40),
)
def test_the_tracker_agrees_with_a_plain_list_of_flags(position, steps):
    tracker = OffsetTracker(position)
    received: list[list] = []  # [offset, done]
    previous = position
    offset = position - 1
    for gap, finish in steps:
        offset += gap
        tracker.received(offset)
        received.append([offset, False])
        if finish < len(received):
            expected = not received[finish][1]
            received[finish][1] = True
            assert tracker.done(received[finish][0]) is expected
        still_open = [o for o, done in received if not done]

        assert tracker.open_offsets() == tuple(still_open)
        assert tracker.oldest_open() == (still_open[0] if still_open else None)
        assert len(tracker) == len(still_open)
        assert tracker.highest == offset
        assert tracker.watermark == (still_open[0] if still_open else offset + 1)
        assert tracker.watermark >= previous
        previous = tracker.watermark
