"""The demo as a process on a broker that stays: it must leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kafka import admin_client, wait_until
from worker.topics import existing_partitions


class Demo:
    """A running demo and what it has written."""

    def __init__(self, broker: str, folder: Path, *arguments: str) -> None:
        self.out_path, self.err_path = folder / "out", folder / "err"
        environment = {n: text for n, text in os.environ.items() if not n.startswith("OASR_")}
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    "-m",
                    "worker",
                    "demo",
                    "--bootstrap-servers",
                    broker,
                    *arguments,
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def out(self) -> str:
        return self.out_path.read_text()

    def err(self) -> str:
        return self.err_path.read_text()

    def descendants(self) -> set[int]:
        """Process ids below the demo, by parent as the kernel tells."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                rest = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(stat.parent.name)] = int(rest[1])
        below: set[int] = set()
        found = {self.process.pid}
        while found:
            found = {pid for pid, parent in parents.items() if parent in found} - below
            below |= found
        return below


def demo_topics(broker: str) -> set[str]:
    with admin_client(broker) as admin:
        return {name for name in existing_partitions(admin) if name.startswith("oasr-demo-")}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def demo(broker: str, tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(broker, tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.mark.slow
def test_the_demo_ends_by_itself_with_everything_arrived(
    broker: str, demo: Callable[..., Demo]
) -> None:
    running = demo("--calls", "2", "--speed", "2", "--time-limit", "200")

    assert running.process.wait(280) == 0, running.out() + running.err()
    shown = running.out()
    assert "2 of 2 ended" in shown
    assert "6 of 6 completed" in shown
    assert "every call and file is complete" in shown
    for role in ("agent", "customer"):
        assert role in shown
    assert demo_topics(broker) == set()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_takes_its_worker_and_topics_along(
    broker: str, demo: Callable[..., Demo], stop: signal.Signals
) -> None:
    running = demo("--calls", "2")
    wait_until("a partial is shown", lambda: "…" in running.out(), 120)
    children = running.descendants()
    assert children

    running.process.send_signal(stop)

    assert running.process.wait(60) == (130 if stop is signal.SIGINT else 128 + stop)
    assert not any(alive(pid) for pid in children)
    assert demo_topics(broker) == set()
    assert "Traceback" not in running.err()
