"""Equal lines are written once a minute and say how many there were."""

from __future__ import annotations

from tests.support.lanes import Clock
from worker.seldom import TELL_EVERY_S, Seldom


def test_a_line_is_written_once_a_minute_and_counts_what_it_left_out() -> None:
    clock = Clock()
    seldom = Seldom(clock)

    assert seldom.ending("a") == ""
    assert [seldom.ending("a") for _ in range(7)] == [None] * 7
    assert seldom.ending("b") == ""
    clock.now += TELL_EVERY_S
    assert seldom.ending("a") == " (7 more since the last line like this)"
    clock.now += TELL_EVERY_S
    assert seldom.ending("a") == ""
