"""One node of Apache Kafka (KRaft) as a child process on free ports, with a temporary log."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.devkafka import BrokerUnavailable
from worker.devkafka_guard import end, guarded
from worker.devkafka_jars import java_program, kafka_jars
from worker.devkafka_properties import as_file, node_properties
from worker.devkafka_ready import await_broker

START_TIMEOUT_S = 90.0
_TAIL_BYTES = 2000
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG_LEVEL = "-Dorg.apache.logging.log4j.level=WARN"


@contextmanager
def kafka_server(cache_dir: Path, say: Callable[[str], None]) -> Iterator[str]:
    """Bootstrap servers of a fresh, empty Kafka that ends with the block or with this process.

    Raises `BrokerUnavailable` when Java or the jars are missing, or with the end of the broker's
    log when it does not start.
    """
    java = java_program()
    jvm = [java, *_JVM, _LOG_LEVEL, "-cp", f"{kafka_jars(cache_dir, say)}/*"]
    folder = Path(tempfile.mkdtemp(prefix="oasr-kafka-"))
    try:
        with _running(jvm, folder) as bootstrap_servers:
            yield bootstrap_servers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(jvm: list[str], folder: Path) -> Iterator[str]:
    bootstrap_servers = _configure(folder)
    properties = str(folder / "server.properties")
    _format(jvm, properties)
    log_path = folder / "broker.log"
    with open(log_path, "wb") as log:
        guard = guarded(["--remove", str(folder), *jvm, "kafka.Kafka", properties], log)
    try:
        _await(bootstrap_servers, guard, log_path)
        yield bootstrap_servers
    finally:
        end(guard)


def _configure(folder: Path) -> str:
    broker_port, controller_port = free_ports(2)
    bootstrap_servers = f"127.0.0.1:{broker_port}"
    properties = node_properties(
        listen=bootstrap_servers,
        advertised=bootstrap_servers,
        controller=f"127.0.0.1:{controller_port}",
    )
    properties["log.dirs"] = str(folder / "log")
    (folder / "server.properties").write_text(as_file(properties))
    return bootstrap_servers


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nothing listens on just now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def cluster_id() -> str:
    """A fresh id as Kafka writes it: 16 random bytes in URL-safe base64 without padding."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return cluster_id() if text.startswith("-") else text  # it would read as an option


def _format(jvm: list[str], properties: str) -> None:
    tool = ["kafka.tools.StorageTool", "format"]
    done = subprocess.run(
        [*jvm, *tool, "-t", cluster_id(), "-c", properties],
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


def _await(bootstrap_servers: str, guard: subprocess.Popen[bytes], log_path: Path) -> None:
    log = open(log_path, "rb")  # noqa: SIM115 - kept open: the guard removes the file
    try:
        await_broker(bootstrap_servers, START_TIMEOUT_S, alive=lambda: guard.poll() is None)
    except BrokerUnavailable as error:
        tail = log.read()[-_TAIL_BYTES:].decode(errors="replace").strip()
        raise BrokerUnavailable(f"{error}; its log ends: {tail or '(empty)'}") from None
    finally:
        log.close()
