"""Calls for releases on a node, and what is left of them on the topics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.support.bundled_calls import assert_all_was_heard, bundled_calls
from tests.support.exactly_once import read_committed, repeats
from tests.support.kafka import Message, Topics, admin_client, consume_all, produce
from tests.support.worker_calls import all_ended, side_by_side


class Calls:
    """All bundled calls side by side, said in equal parts: they are open from first to last."""

    def __init__(self, brokers: str, topics: Topics, parts: int) -> None:
        calls = bundled_calls(topics.chunks)
        messages = list(side_by_side(calls))
        size = -(-len(messages) // parts)
        self.number = len(calls)
        self._brokers = brokers
        self._parts = [messages[at : at + size] for at in range(0, len(messages), size)]

    def go_on(self) -> None:
        """Says the next part."""
        produce(self._brokers, self._parts.pop(0), timeout_s=120)

    def go_on_while(self, act: Callable[[], object]) -> None:
        """Says half of the next part before `act`, and half while it runs."""
        part = self._parts.pop(0)
        half = len(part) // 2
        produce(self._brokers, part[:half], timeout_s=120)
        failures: list[BaseException] = []
        talking = threading.Thread(target=_say, args=(self._brokers, part[half:], failures))
        talking.start()
        try:
            act()
        finally:
            talking.join()
        assert failures == []

    @property
    def said(self) -> bool:
        """Whether nothing is left to say."""
        return not self._parts


def _say(brokers: str, part: list[Message], failures: list[BaseException]) -> None:
    try:
        produce(brokers, part, timeout_s=300)
    except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
        failures.append(error)


def assert_nothing_was_lost(brokers: str, topics: Topics, calls: int) -> None:
    """Every call has ended, and all of it was heard."""
    consume_all(brokers, topics.events, all_ended(calls), timeout_s=300)
    finals = assert_all_was_heard(
        read_committed(brokers, topics.transcripts), read_committed(brokers, topics.events)
    )
    assert len(finals) == calls
    assert read_committed(brokers, topics.dead_letters) == []


def assert_nothing_was_repeated(brokers: str, topics: Topics) -> None:
    """No reader of what is committed sees an id twice."""
    for name in (topics.transcripts, topics.events):
        records = read_committed(brokers, name)
        assert records
        assert repeats(records) == {}


def members(brokers: str, group: str) -> dict[str, list[int]]:
    """Partitions of each member that the group has now, by its static name or its id.

    One that leaves says so, and is not waited for.
    """
    with admin_client(brokers) as admin:  # type: ignore[var-annotated]
        told: list[Any] = admin.describe_consumer_groups([group])[group].result().members
    return {
        member.group_instance_id or member.member_id: sorted(
            place.partition for place in member.assignment.topic_partitions
        )
        for member in told
    }
