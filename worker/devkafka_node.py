"""One node of Apache Kafka (KRaft) as a child process that can be stopped, broken and restarted."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from worker.devkafka import BrokerUnavailable
from worker.devkafka_guard import end, guarded
from worker.devkafka_jars import java_program, kafka_jars
from worker.devkafka_properties import as_file, node_properties, quorum
from worker.devkafka_ready import await_broker

START_TIMEOUT_S = 90.0
_HOST = "127.0.0.1"
_TAIL_BYTES = 2000
_KILL_WAIT_S = 30.0
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG_LEVEL = "-Dorg.apache.logging.log4j.level=WARN"


def kafka_program(cache_dir: Path, say: Callable[[str], object], heap_mib: int) -> list[str]:
    """The `java` command to which a main class is added; raises `BrokerUnavailable`."""
    java = java_program()
    jars = kafka_jars(cache_dir, say)
    return [java, f"-Xmx{heap_mib}m", *_JVM, _LOG_LEVEL, "-cp", f"{jars}/*"]


class Node:
    """A node with a folder of its own: its log outlives its process.

    It is formatted at the first start. Its process ends with this one, however this one ends.
    """

    format_options: tuple[str, ...] = ()  # more of them for the storage tool

    def __init__(
        self,
        program: list[str],
        folder: Path,
        cluster: str,
        number: int = 1,
        controllers: dict[int, str] | None = None,
    ) -> None:
        """`controllers` are the addresses of all nodes' controllers, where there are several."""
        self.number = number
        self.folder = folder
        (self._port,) = free_ports(1)
        self._program = program
        self._cluster = cluster
        self._controllers = controllers
        self._controller = (
            controllers[number] if controllers is not None else f"{_HOST}:{free_ports(1)[0]}"
        )
        self._guard: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """Where clients find it, `host:port`."""
        return f"{_HOST}:{self._port}"

    @property
    def running(self) -> bool:
        """Whether its process has been started and has not ended."""
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Start the process, which answers some seconds later; may raise `BrokerUnavailable`."""
        properties = self._configured()
        if not (self.folder / "log" / "meta.properties").exists():
            self._format(properties)
        self._pid_path.unlink(missing_ok=True)
        with open(self._log_path, "ab") as log:
            self._guard = guarded(
                [
                    *("--remove", str(self.folder), "--pid", str(self._pid_path)),
                    *(*self._program, "kafka.Kafka", str(properties)),
                ],
                log,
            )

    def stop(self) -> None:
        """End it in order, and its log with it."""
        if self._guard is not None:
            end(self._guard)

    def kill(self) -> None:
        """SIGKILL; its log stays, `start` takes it up again."""
        self._signal(signal.SIGKILL)
        if self._guard is not None:
            self._guard.wait(_KILL_WAIT_S)
            end(self._guard)  # closes its input

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def move(self) -> None:
        """Take another port for clients from the next start on."""
        (self._port,) = free_ports(1)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns when it answers; `BrokerUnavailable` with its last words when it does not."""
        try:
            await_broker(self.address, timeout_s, alive=lambda: self.running)
        except BrokerUnavailable as error:
            tail = self._log_path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
            raise BrokerUnavailable(f"{error}; its log ends: {tail or '(empty)'}") from None

    @property
    def _log_path(self) -> Path:
        return self.folder / "broker.log"

    @property
    def _pid_path(self) -> Path:
        return self.folder / "broker.pid"

    def _signal(self, number: signal.Signals) -> None:
        while self.running and not self._pid_path.exists():
            time.sleep(0.01)  # its guard is about to tell
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self._pid_path.read_text()), number)

    def properties(self) -> dict[str, str]:
        """What it is configured with."""
        properties = node_properties(
            listen=self.address,
            advertised=self.address,
            controller=self._controller,
            number=self.number,
            voters=None if self._controllers is None else quorum(self._controllers),
        )
        return properties | {"log.dirs": str(self.folder / "log")}

    def _configured(self) -> Path:
        path = self.folder / "server.properties"
        path.touch(0o600)  # a node may be told secrets
        path.write_text(as_file(self.properties()))
        return path

    def _format(self, properties: Path) -> None:
        tool = ["kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [
                *(*self._program, *tool, "-t", self._cluster, "-c", str(properties)),
                *self.format_options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            start_new_session=True,
            timeout=START_TIMEOUT_S,
        )
        if done.returncode != 0:
            raise BrokerUnavailable(f"Kafka's storage tool failed: {done.stdout[-_TAIL_BYTES:]}")


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on just now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def cluster_id() -> str:
    """A fresh id as Kafka writes it: 16 random bytes in URL-safe base64 without padding."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return cluster_id() if text.startswith("-") else text  # it would read as an option
