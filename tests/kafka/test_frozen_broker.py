"""A broker that answers nothing while records are on their way to it: none of them is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos import Play, Sizes
from tests.support.chaos_acts import Script
from worker.devkafka_server import kafka_nodes

FREEZES = 3
FROZEN_S = 6.0
# Requests are given up while the broker is frozen, and sent again on new connections.
IMPATIENT = ("OASR_KAFKA__CLIENT", '{"socket.timeout.ms": 2000}')
SIZES = Sizes(workers=1, calls=6, call_s=18.0, speed=1.0, seconds=40.0, settings=(IMPATIENT,))


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@pytest.mark.slow
@pytest.mark.storm
@pytest.mark.timeout(900)
def test_no_final_is_lost_when_produce_requests_time_out(own_kafka: Path, tmp_path: Path) -> None:
    with kafka_nodes(own_kafka, say, count=1) as (node,):
        play = Play(SIZES, node.address, tmp_path, say)

        def script() -> Iterator[float]:
            for _ in range(FREEZES):
                yield 6.0
                node.freeze()
                yield FROZEN_S
                node.thaw()

        report = play.through(Script(play.fellows, script(), say))

    assert report.wrong == []
    assert report.verdict.expected > 2 * SIZES.calls
    assert "Timed out ProduceRequest" in play.fellows[0].process.log()
