"""The demo's worker: a process of its own with a configuration of its own."""

from __future__ import annotations

import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from worker.devkafka_guard import end, guarded
from worker.devkafka_node import free_ports
from worker.settings import Settings, load

_START_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1
_TAIL_BYTES: Final = 2000
_NOBODY: Final = "nobody"


class WorkerFailed(RuntimeError):
    """The worker did not start or ended too early; the message holds the end of its log."""


def named_bootstrap_servers() -> str | None:
    """The brokers that the environment names, or None; raises SettingsError."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        # the environment wins over the file: what comes back is what it says
        yaml.safe_dump({"kafka": {"bootstrap_servers": _NOBODY}}, file)
        file.flush()
        found = load(file.name).kafka.bootstrap_servers
    return None if found == _NOBODY else found


def write_settings(path: Path, bootstrap_servers: str, run: str, partitions: int) -> Settings:
    """Writes the demo's settings and returns them as the worker will see them.

    Topics and group are named after `run`, so that a broker that is in use stays undisturbed;
    what the environment sets wins, as it does in the worker.
    """
    port, page_port = free_ports(2)
    names = ("chunks", "files", "transcripts", "partials", "events", "dead_letters", "state")
    contents = {
        "kafka": {"bootstrap_servers": bootstrap_servers, "group": f"oasr-demo-{run}"},
        "topics": {name: f"oasr-demo-{run}.{name}" for name in names}
        | {"partitions": partitions, "replication": -1},
        "http": {"host": "127.0.0.1", "port": port},
        "live_page": {"enabled": True, "port": page_port, "show_text": True},
    }
    path.write_text(yaml.safe_dump(contents))
    return load(path)


@contextmanager
def worker(settings_path: Path, settings: Settings, log_path: Path) -> Iterator[RunningWorker]:
    """A worker that has joined its group, ended with the block; raises WorkerFailed."""
    with open(log_path, "wb") as log:
        command = [sys.executable, "-m", "worker", "run", "--config", str(settings_path)]
        guard = guarded(command, log)
    running = RunningWorker(guard.poll, log_path)
    try:
        running.await_ready(f"http://{settings.http.host}:{settings.http.port}/readyz")
        yield running
    finally:
        end(guard)


class RunningWorker:
    """Whether the process is there, and what it has written."""

    def __init__(self, poll: Callable[[], int | None], log_path: Path) -> None:
        self._poll = poll
        self._log_path = log_path

    def check(self) -> None:
        """Raises WorkerFailed if the process has ended."""
        if self._poll() is not None:
            raise WorkerFailed(f"the worker has ended; its log ends:\n{self.log_tail()}")

    def await_ready(self, url: str) -> None:
        """Returns when the worker is ready; raises WorkerFailed."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _answers(url):
            self.check()
            if time.monotonic() > deadline:
                raise WorkerFailed(
                    f"the worker is not ready after {_START_TIMEOUT_S:.0f} s; its log ends:\n"
                    f"{self.log_tail()}"
                )
            time.sleep(_POLL_S)

    def log_tail(self) -> str:
        """The end of the worker's log."""
        return self._log_path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
