"""Contact is there while every leader of what is read is connected."""

from __future__ import annotations

from typing import Any

import pytest

from worker.contact import Contact


def statistics(up: set[int], leaders: dict[int, int]) -> dict[str, Any]:
    """What the client says: brokers 1 to 3, and the leader of each partition that it reads."""
    brokers = {
        f"b:{n}/{n}": {"nodeid": n, "state": "UP" if n in up else "CONNECT"} for n in (1, 2, 3)
    }
    brokers["coordinator"] = {"nodeid": -1, "state": "UP" if up else "DOWN"}
    partitions = {str(n): {"leader": b, "fetch_state": "active"} for n, b in leaders.items()}
    partitions["-1"] = {"leader": -1, "fetch_state": "none"}
    partitions["9"] = {"leader": 3, "fetch_state": "none"}  # somebody else reads it
    return {"brokers": brokers, "topics": {"chunks": {"partitions": partitions}}}


def test_nothing_is_known_before_the_client_says_something() -> None:
    assert not Contact().is_there


@pytest.mark.parametrize(
    ("up", "leaders", "is_there"),
    [
        ({1, 2, 3}, {0: 1, 1: 2}, True),
        ({1, 2}, {0: 1, 1: 2}, True),
        ({1, 3}, {0: 1, 1: 2}, False),
        (set(), {0: 1, 1: 2}, False),
        ({1, 2, 3}, {0: -1}, False),
        ({3}, {}, True),
        (set(), {}, False),
    ],
)
def test_every_leader_of_what_is_read_must_be_connected(
    up: set[int], leaders: dict[int, int], is_there: bool
) -> None:
    contact = Contact()
    contact.told(statistics(up, leaders))

    assert contact.is_there is is_there


def test_it_is_lost_with_the_last_connection_and_found_with_the_next_statistics() -> None:
    contact = Contact()
    contact.told(statistics({1}, {0: 1}))
    contact.all_down()
    assert not contact.is_there

    contact.told(statistics({1}, {0: 1}))
    assert contact.is_there
