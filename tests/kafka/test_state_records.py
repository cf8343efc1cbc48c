"""State records on a broker: found where a commit says, or proved gone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka import Message, Topics, admin_client, produce, wait_until
from tests.support.lanes import Clock
from worker.clients import state_reader_properties
from worker.settings import Settings
from worker.state_reader import ENDED_FOR_S, StateReader
from worker.state_reference import StateReference, reference_to

VALUES = [b"map %d" % number for number in range(40)]


class Counts:
    """Results of the reader's searches."""

    def __init__(self) -> None:
        self.results: list[str] = []

    def state_read(self, result: str) -> None:
        self.results.append(result)


class Bench:
    """A reader on a state topic of one partition that holds some records."""

    def __init__(self, broker: str, topics: Topics) -> None:
        self.broker, self.topic = broker, topics.state
        places = produce(broker, [Message(self.topic, b"k", value) for value in VALUES])
        self.references = [
            reference_to(value, *place) for value, place in zip(VALUES, places, strict=True)
        ]
        settings = Settings(kafka={"bootstrap_servers": broker, "group": "states"})
        self.clock, self.counts = Clock(), Counts()
        self.told: list[bytes | None] = []
        self.longest_poll_s = 0.0
        self.reader = StateReader(
            self.topic,
            lambda: Consumer(state_reader_properties(settings)),
            self.counts,
            self.clock,
        )

    def look_for(self, *references: StateReference) -> list[bytes | None]:
        """What is told of the records, in the order of the questions."""
        self.told = []
        for reference in references:
            self.reader.read(reference, self.told.append)

        def all_told() -> bool:
            began = time.monotonic()
            self.reader.poll()
            self.longest_poll_s = max(self.longest_poll_s, time.monotonic() - began)
            return len(self.told) == len(references)

        wait_until("all searches have ended", all_told, 60)
        return self.told


@pytest.fixture
def bench(broker: str, unique_topics: Callable[..., Topics]) -> Bench:
    return Bench(broker, unique_topics(partitions=1))


def test_records_of_one_partition_are_found_in_any_order(bench: Bench) -> None:
    order = [39, 3, 17, 0, 38, 17]

    found = bench.look_for(*[bench.references[number] for number in order])
    bench.reader.close()

    assert found == [VALUES[number] for number in order]
    assert bench.counts.results == ["found"] * len(order)
    assert bench.longest_poll_s < 1  # nothing waits for the broker


def test_a_record_below_the_start_of_the_log_is_gone_and_those_above_are_not(bench: Bench) -> None:
    with admin_client(bench.broker) as admin:
        deleted = admin.delete_records([TopicPartition(bench.topic, 0, 20)])
        for future in deleted.values():
            future.result(30)

    found = bench.look_for(bench.references[5], bench.references[20])
    bench.reader.close()

    assert found == [None, VALUES[20]]


def test_an_emptied_log_proves_the_same(bench: Bench) -> None:
    with admin_client(bench.broker) as admin:
        for future in admin.delete_records([TopicPartition(bench.topic, 0, 40)]).values():
            future.result(30)

    assert bench.look_for(bench.references[39]) == [None]
    bench.reader.close()


def test_a_record_above_the_end_of_the_log_is_waited_for(bench: Bench) -> None:
    told: list[bytes | None] = []
    wanted = bench.reader.read(StateReference(0, 60, 1), told.append)

    def heard_the_end() -> bool:
        bench.reader.poll()
        return wanted.ended_since is not None

    wait_until("the end of the log is heard", heard_the_end)
    assert told == []

    def given_up() -> bool:
        bench.reader.poll()
        return told == [None]

    bench.clock.now += ENDED_FOR_S
    wait_until("it is given up", given_up)
    bench.reader.close()
