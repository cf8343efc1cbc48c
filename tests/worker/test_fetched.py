"""What the client has fetched is counted once."""

from __future__ import annotations

from worker.fetched import Fetched


def test_each_message_is_counted_once_however_often_the_total_is_told() -> None:
    counted: list[int] = []
    fetched = Fetched(counted.append)

    for total in (0, 3, 3, 10):
        fetched.told({"rxmsgs": total})

    assert counted == [3, 7]


def test_statistics_without_a_total_count_nothing() -> None:
    counted: list[int] = []
    Fetched(counted.append).told({})

    assert counted == []
