"""What the probes of a running worker say while it loads, loses brokers, shares and leaves."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.support.cluster import Forwarder
from tests.support.files import wav
from tests.support.kafka import Message, WorkerProcess, consumer, produce, wait_until
from tests.support.kafka_clients import create_topics
from tests.support.talk import talk
from tests.support.worker_calls import call_messages, excerpt
from worker.devkafka import Broker, BrokerKind
from worker.devkafka_server import kafka_nodes

MODEL = Path(__file__).parents[2] / "oasr" / "assets" / "callcenter-en-tiny"
FILE_MINUTES = 20  # of speech: far more than the worker may drain
LIMIT_S = 120.0


class Walk:
    """One worker, whose model is loaded when the test says so."""

    def __init__(self, broker: str, reached_by: str, folder: Path, **settings: str) -> None:
        """The worker knows the broker by the address `reached_by`."""
        self.broker, self.folder = broker, folder
        self.group = f"health-{uuid.uuid4().hex[:8]}"
        self.topics = create_topics(Broker(broker, BrokerKind.KAFKA), partitions=2)
        model = folder / "model"
        shutil.copytree(MODEL, model)
        self.pipe = model / "global_cmvn"
        self.statistics = self.pipe.read_bytes()
        self.pipe.unlink()
        os.mkfifo(self.pipe)
        given = {
            "OASR_MODEL__DIR": str(model),
            "OASR_SESSIONS__IDLE_FINALIZE_MS": "600000",
            "OASR_DRAIN_TIMEOUT_MS": "10000",
            "OASR_FILES__ROOTS": f'["{folder}"]',
            "OASR_LOG__FORMAT": "json",
            **{f"OASR_{name}": value for name, value in settings.items()},
        }
        self.worker = WorkerProcess(
            reached_by, self.topics, self.group, folder / "worker.log", given
        )

    def checks(self, path: str) -> dict[str, bool]:
        """The checks of a probe; its status is that of all of them."""
        status, answer = 0, ""

        def answered() -> bool:
            nonlocal status, answer
            assert self.worker.running, self.worker.log()[-4000:]
            status, answer = self.worker.http(path)
            return status != 0

        wait_until(f"{path} is answered", answered, LIMIT_S)
        checks: dict[str, bool] = orjson.loads(answer)["checks"]
        assert (status == 200) == all(checks.values())
        return checks

    def is_alive(self) -> bool:
        return all(self.checks("/livez").values())

    def failing(self) -> set[str]:
        """Checks of readiness that do not pass."""
        return {name for name, passed in self.checks("/readyz").items() if not passed}

    def until_failing(self, *names: str) -> None:
        """Wait until these checks of readiness fail and no other; life goes on meanwhile."""

        def reached() -> bool:
            assert self.is_alive()
            return self.failing() == set(names)

        try:
            wait_until(f"readiness fails by {names}", reached, LIMIT_S)
        except AssertionError as error:
            told = f"it fails by {self.failing()}; the log: {self.worker.log()[-4000:]}"
            raise AssertionError(f"{error}; {told}") from None

    def partitions_with_series(self) -> set[str]:
        """Of the chunk topic."""
        lines = self.worker.http("/metrics")[1].splitlines()
        own = [line for line in lines if self.topics.chunks in line]
        return {found for line in own for found in re.findall(r'partition="(\d+)"', line)}

    def load_the_model(self) -> None:
        """What the worker reads the model from is a pipe; it has its bytes now."""
        self.pipe.write_bytes(self.statistics)


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


@contextlib.contextmanager
def running(walk: Walk) -> Iterator[WorkerProcess]:
    walk.worker.start()
    try:
        yield walk.worker
    finally:
        if walk.worker.running:
            walk.worker.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_probes_of_a_worker_from_its_start_to_its_end(broker: str, tmp_path: Path) -> None:
    reachable: list[str] = []
    with Forwarder(lambda: reachable) as way:
        walk = Walk(broker, way.address, tmp_path)
        with running(walk) as worker:
            loads(walk)
            begins_without_a_broker(walk)
            reachable.append(broker)
            walk.until_failing()
            shares_with_another_member(walk)
            is_held_up_by_a_call(walk)
            drains(walk)

            assert worker.process.wait(LIMIT_S) == 0, worker.log()[-4000:]
            assert all(orjson.loads(line)["message"] for line in worker.log().splitlines())


@pytest.mark.slow
@pytest.mark.storm
@pytest.mark.timeout(900)
def test_a_broker_that_answers_nothing_costs_readiness_and_never_life(
    own_kafka: Path, tmp_path: Path
) -> None:
    with kafka_nodes(own_kafka, say, count=1) as (node,):
        quickly = {
            "HTTP__MAX_BROKER_AGE_MS": "3000",
            "KAFKA__CLIENT": '{"socket.timeout.ms": 2000}',
        }
        walk = Walk(node.address, node.address, tmp_path, **quickly)
        with running(walk):
            walk.load_the_model()
            walk.until_failing()
            node.freeze()
            walk.until_failing("broker")
            node.thaw()
            walk.until_failing()


def loads(walk: Walk) -> None:
    wait_until("the worker answers", lambda: walk.worker.http("/livez")[0] == 200, LIMIT_S)
    assert walk.checks("/startupz") == {"started": False}
    assert walk.failing() == {"started", "joined", "broker"}


def begins_without_a_broker(walk: Walk) -> None:
    walk.load_the_model()
    wait_until("the worker has started", lambda: walk.checks("/startupz")["started"], LIMIT_S)
    walk.until_failing("joined", "broker")


def shares_with_another_member(walk: Walk) -> None:
    """Whoever gives a partition away stays ready and forgets its series."""
    wait_until("it has both", lambda: walk.partitions_with_series() == {"0", "1"}, LIMIT_S)
    other = consumer(
        walk.broker, walk.group, **{"partition.assignment.strategy": "cooperative-sticky"}
    )
    other.subscribe([walk.topics.chunks])

    def gave_one_away() -> bool:
        other.poll(0.1)
        assert walk.is_alive()
        assert walk.failing() == set()
        return len(other.assignment()) == 1 and len(walk.partitions_with_series()) == 1

    wait_until("it has one", gave_one_away, LIMIT_S)
    assert walk.partitions_with_series().isdisjoint({str(p.partition) for p in other.assignment()})
    other.close()
    wait_until("it has both again", lambda: walk.partitions_with_series() == {"0", "1"}, LIMIT_S)


def is_held_up_by_a_call(walk: Walk) -> None:
    """A call without an end pins its partition, which is no reason to restart anything."""
    call = call_messages(walk.topics, "call", excerpt(0, 0.0, 8.0))
    produce(walk.broker, call[: len(call) // 2])
    pinned = "oasr_worker_watermark_pinned_seconds"
    wait_until("its watermark is pinned", lambda: walk.worker.metric(pinned) > 2, LIMIT_S)
    walk.until_failing()


def drains(walk: Walk) -> None:
    speech = np.tile(talk(30.0, 8000, seed=1), 2 * FILE_MINUTES)
    (walk.folder / "long.wav").write_bytes(wav(speech))
    claim = orjson.dumps({"uri": f"file://{walk.folder}/long.wav"})
    header = {"content-type": "application/json"}
    produce(walk.broker, [Message(walk.topics.files, b"long", claim, header)])
    wait_until("it reads", lambda: walk.worker.metric("oasr_worker_open_files") == 1, LIMIT_S)

    walk.worker.process.send_signal(signal.SIGTERM)
    walk.until_failing("not_draining")
