"""The board takes snapshots only while somebody looks, and never spends much of the loop's time."""

from __future__ import annotations

import orjson
import pytest

from tests.support.lanes import Clock
from worker.live_board import MIN_INTERVAL_S, REST, WATCHED_S, LiveBoard


class Desk:
    """A board, a clock, and what was taken at which time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.board = LiveBoard(self.clock)
        self.taken: list[float] = []
        self.takes_s = 0.0

    def turn(self) -> None:
        self.board.update(self._take)

    def _take(self) -> dict[str, object]:
        self.taken.append(self.clock.now)
        self.clock.now += self.takes_s
        return {"number": len(self.taken)}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_nothing_is_computed_while_nobody_looks(desk: Desk) -> None:
    desk.turn()
    assert desk.board.look() is None  # who asks first only says that somebody looks
    assert desk.taken == []

    desk.turn()
    seen = desk.board.look()
    assert seen is not None
    assert orjson.loads(seen[0])["number"] == 1

    desk.clock.now += WATCHED_S + 0.1
    desk.turn()
    assert len(desk.taken) == 1


def test_no_more_than_four_snapshots_are_taken_a_second(desk: Desk) -> None:
    began = desk.clock.now
    for _ in range(1000):
        desk.board.look()
        desk.turn()
        desk.clock.now += 0.01
    gaps = [b - a for a, b in zip(desk.taken, desk.taken[1:], strict=False)]

    assert min(gaps) >= MIN_INTERVAL_S - 1e-9
    assert 30 <= len(desk.taken) <= 4 * (desk.clock.now - began) + 1


def test_a_snapshot_that_takes_long_is_followed_by_a_longer_rest(desk: Desk) -> None:
    desk.takes_s = 0.1
    for _ in range(2000):
        desk.board.look()
        desk.turn()
        desk.clock.now += 0.01
    gaps = [b - a for a, b in zip(desk.taken, desk.taken[1:], strict=False)]

    assert min(gaps) >= REST * desk.takes_s - 1e-6


def test_a_loop_that_hangs_shows_by_the_age_of_what_it_showed_last(desk: Desk) -> None:
    desk.board.look()
    desk.turn()
    for _ in range(20):
        desk.clock.now += 1.0
        seen = desk.board.look()

    assert seen is not None
    assert seen[1] == pytest.approx(20.0)


def test_a_later_visitor_does_not_see_what_was_shown_to_an_earlier_one(desk: Desk) -> None:
    desk.board.look()
    desk.turn()
    desk.clock.now += 3600
    assert desk.board.look() is None
    assert desk.board.look() is None  # the loop has not turned since

    desk.turn()
    seen = desk.board.look()
    assert seen is not None
    assert orjson.loads(seen[0])["number"] == 2
