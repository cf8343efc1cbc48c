"""Three brokers with three replicas each of everything, of which some die: no final is lost.

`OASR_TEST_OUTAGE_S` makes the outage longer than the twenty seconds it takes here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import KafkaException

from tests.support.chaos import EXACTLY_ONCE, GROUP, Play, Report, Sizes
from tests.support.chaos_acts import Script
from tests.support.cluster import Forwarder, Roles
from worker.devkafka_node import Node
from worker.devkafka_server import kafka_nodes

OUTAGE_S = float(os.environ.get("OASR_TEST_OUTAGE_S", "20"))
SIZES = Sizes(calls=8, call_s=18.0, speed=1.0, seconds=40.0, nodes=3)
# Static ids: the names of the workers' transactions are made of them.
EXACTLY = replace(SIZES, mode=EXACTLY_ONCE, static=True)
T = TypeVar("T")


@pytest.fixture
def nodes(own_kafka: Path) -> Iterator[list[Node]]:
    """A cluster of a test's own."""
    with kafka_nodes(own_kafka, say, count=3) as cluster:
        yield cluster


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def servers_of(nodes: list[Node]) -> str:
    return ",".join(node.address for node in nodes)


def assert_kept(report: Report) -> None:
    assert report.wrong == []
    assert report.verdict.expected > 3 * SIZES.calls


def found(ask: Callable[[], T]) -> T | None:
    """The cluster's answer; None while it has none."""
    try:
        return ask()
    except (KafkaException, KeyError):  # nobody answers, or nobody leads
        return None


@pytest.mark.slow
@pytest.mark.storm
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("sizes", [SIZES, EXACTLY], ids=lambda sizes: sizes.mode)
def test_leaders_coordinators_and_controller_die_one_after_the_other(
    nodes: list[Node], tmp_path: Path, sizes: Sizes
) -> None:
    play = Play(sizes, servers_of(nodes), tmp_path, say)
    roles = Roles(nodes, servers_of(nodes))
    outputs = [play.topics.chunks, play.topics.transcripts]
    moved: dict[str, tuple[Node, Node | None]] = {}

    def script() -> Iterator[float]:
        yield 5.0
        roles_in_turn: list[tuple[str, Callable[[], Node]]] = [
            ("leader of chunks", lambda: roles.leader(play.topics.chunks, 0)),
            ("leader of finals", lambda: roles.leader(play.topics.transcripts, 0)),
            ("group's coordinator", lambda: roles.group_coordinator(GROUP)),
            ("controller", roles.controller),
        ]
        if sizes is EXACTLY:
            name = f"{GROUP}-{play.fellows[0].name}"
            coordinator = partial(roles.transaction_coordinator, name)
            roles_in_turn.append(("transactions' coordinator", coordinator))
        for role, who in roles_in_turn:
            while (victim := found(who)) is None:
                yield 0.5
            victim.kill()
            while (heir := found(who)) in (None, victim):
                yield 0.5
            moved[role] = victim, heir
            victim.start()
            while not found(lambda: roles.all_in_sync(outputs)):
                yield 0.5

    report = play.through(Script(play.fellows, script(), play.say))

    assert len(moved) == (5 if sizes is EXACTLY else 4)
    assert all(heir is not victim for victim, heir in moved.values())
    assert_kept(report)


@pytest.mark.slow
@pytest.mark.storm
@pytest.mark.timeout(1500)
def test_all_brokers_are_away_and_come_back_on_new_ports(nodes: list[Node], tmp_path: Path) -> None:
    with Forwarder(lambda: [node.address for node in nodes]) as entrance:
        play = Play(SIZES, entrance.address, tmp_path, say)
        before = [node.address for node in nodes]
        back_s: list[float] = []

        def script() -> Iterator[float]:
            yield 8.0
            for node in nodes:
                node.kill()
            yield OUTAGE_S
            sent = sent_of(play)
            for node in nodes:
                node.move()
                node.start()
            for node in nodes:
                node.await_ready()
            began = time.monotonic()
            while sent_of(play) == sent:
                yield 0.5
            back_s.append(time.monotonic() - began)

        report = play.through(Script(play.fellows, script(), play.say))

    assert not set(before) & {node.address for node in nodes}
    assert_kept(report)
    assert back_s[0] < 60


def sent_of(play: Play) -> float:
    """Records that the broker has acknowledged to the workers."""
    return sum(f.process.metric("oasr_worker_records_published_total") for f in play.fellows)
