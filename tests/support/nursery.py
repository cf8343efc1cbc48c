"""Workers that start at once: the model is loaded once, and every worker is a fork of that.

Run as a program it reads lines from standard input: a log file's name, and where to stop if it is
to stop somewhere (`tests/support/stop_points`). It starts a worker for each and answers with its
process id. The settings are those of its environment.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient

from tests.support.kafka_clients import Topics, wait_until
from tests.support.stop_points import POINTS, install_with_records
from worker import logs
from worker.assembly import Watched, assemble
from worker.connections import connection
from worker.delivery import make_outputs
from worker.health import Health
from worker.loading import ChildDeaths, LoadedModels, load_models
from worker.metrics import Metrics, Registry
from worker.producer import FatalClientError
from worker.settings import Settings, load

FOREVER_S = 300.0


@dataclass
class Forked:
    """One worker; it is not a child of this process, so its end is seen by its id alone."""

    pid: int
    log_path: Path

    @property
    def running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def stopped(self) -> bool:
        """Whether it was stopped by a signal and does not go on."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return False
        return status.rpartition(") ")[2].startswith("T")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal that ends it, and wait for that."""
        if self.running:
            self.send(number)
            wait_until("the worker has ended", lambda: not self.running, FOREVER_S)

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def heard(self, event: str) -> int:
        """How often it was told of an event that has partitions of the chunk topic."""
        return self.log().count(f"{event} [")


class Nursery:
    """Starts workers on a broker until the block ends, which kills them."""

    def __init__(
        self, bootstrap_servers: str, topics: Topics, group: str, settings: dict[str, str]
    ) -> None:
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("OASR_")},
            "OMP_NUM_THREADS": "1",
            "OASR_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "OASR_KAFKA__GROUP": group,
            **topics.environment(),
            **settings,
        }
        self._workers: list[Forked] = []

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery"],
            env=self._environment,
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            if worker.running:
                worker.send(signal.SIGKILL)
        with self._process:  # closes the pipes and waits
            self._process.kill()

    def start(self, log_path: Path, stop_at: tuple[str, Path] | None = None) -> Forked:
        """A worker that writes to this log; it stops at a point once a file is there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = "\t".join(map(str, (log_path, *(stop_at or ()))))
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        worker = Forked(int(self._process.stdout.readline()), log_path)
        self._workers.append(worker)
        return worker


def _work(settings: Settings, loaded: LoadedModels, deaths: ChildDeaths, line: str) -> None:
    """A worker's life, in a fork."""
    log_path, *stop_at = line.split("\t")
    log = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, sys.stderr.fileno())
    os.dup2(log, sys.stdout.fileno())
    if stop_at:
        point, armed = stop_at
        install_with_records(POINTS[point], Path(armed))
    logs.configure("INFO", "text")
    metrics, health = Metrics(Registry()), Health()
    admin, outputs = AdminClient(connection(settings)), make_outputs(settings, metrics)
    loop = assemble(settings, loaded, deaths, outputs, admin, Watched(metrics, health))
    signal.signal(signal.SIGTERM, lambda _number, _frame: loop.stop())
    health.begin()
    try:
        loop.run()
    except FatalClientError as error:
        logging.getLogger(__name__).error("%s", error)
        raise


def main() -> None:
    """Load the model, then fork for every line."""
    settings = load()
    metrics = Metrics(Registry())
    deaths = ChildDeaths(metrics)
    loaded = load_models(settings, metrics, deaths)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _work(settings, loaded, deaths, line.strip())
                status = 0
            finally:
                os._exit(status)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
