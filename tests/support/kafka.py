"""What the tests on a broker share: topics of their own, messages in and out, a worker process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.support.kafka_clients import (
    Committed,
    Message,
    Topics,
    admin_client,
    as_checked,
    committed,
    consume_all,
    consumer,
    create_topics,
    produce,
    producer,
    wait_until,
)
from worker.devkafka_node import free_ports

__all__ = [
    "Committed",
    "Message",
    "Topics",
    "WorkerProcess",
    "admin_client",
    "as_checked",
    "committed",
    "consume_all",
    "consumer",
    "create_topics",
    "produce",
    "producer",
    "wait_until",
]

SESSION_TIMEOUT_MS = 6000


class WorkerProcess:
    """`python -m worker run` as a child, as a user would start it; ends with the block.

    Only the settings given here reach it: `OASR_` names of the test run's environment do not.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Topics,
        group: str,
        log_path: Path,
        settings: dict[str, str] | None = None,
    ) -> None:
        (self.http_port,) = free_ports(1)
        self.group = group
        self.log_path = log_path
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("OASR_")},
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "OASR_KAFKA__BOOTSTRAP_SERVERS": bootstrap_servers,
            "OASR_KAFKA__GROUP": group,
            "OASR_KAFKA__SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            "OASR_KAFKA__AUTO_OFFSET_RESET": "earliest",
            "OASR_HTTP__HOST": "127.0.0.1",
            "OASR_HTTP__PORT": str(self.http_port),
            "OASR_COMMITS__INTERVAL_MS": "200",
            **topics.environment(),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcess:
        self.start()
        try:
            self.await_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self.terminate()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The child; it must have been started."""
        assert self._process is not None, "the worker was not started"
        return self._process

    @property
    def running(self) -> bool:
        """Whether a child was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process; the log of an earlier start goes on."""
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worker", "run"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def await_ready(self, timeout_s: float = 180.0) -> None:
        """Returns when `/readyz` answers 200; fails with the log when the process ends before."""

        def ready() -> bool:
            if not self.running:
                raise AssertionError(f"the worker ended: {self.log()[-4000:]}")
            return self.http("/readyz")[0] == 200

        try:
            wait_until("the worker is ready", ready, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; its log: {self.log()[-4000:]}") from None

    def http(self, path: str) -> tuple[int, str]:
        """Status and body of a GET on the worker's port; status 0 when it does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}{path}", timeout=2
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(TimeoutError, ConnectionError):
                return error.code, error.read().decode()
            return 0, ""
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return 0, ""

    def metric(self, name: str) -> float:
        """Sum of a metric over all its labels; 0 when it has no sample."""
        _, body = self.http("/metrics")
        samples = [line for line in body.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def kill(self) -> None:
        """SIGKILL, and waits for the end: the process says goodbye to nobody."""
        self.process.kill()
        self.process.wait(30)

    def terminate(self, timeout_s: float = 90.0) -> int:
        """SIGTERM; the exit status. Kills and fails when it takes longer than `timeout_s`."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the worker did not end on SIGTERM: {self.log()[-4000:]}"
            ) from None

    def log(self) -> str:
        """Everything the process has written."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
