"""A process of its own that reads recordings, one after the other, and what it sends.

Whatever a file does to its decoder, it does to this process: it may die of it, and its owner may
end it at any time. Its memory is limited by the operating system.
"""

from __future__ import annotations

import logging
import re
import resource
import time
from dataclasses import dataclass
from enum import Enum, auto
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from oasr.audio.segmenter import SegmenterConfig
from worker.child_process import leave_signals_to_the_worker
from worker.codec import FileJob
from worker.file_reader import Cancelled, Item, Phase, Reading
from worker.file_source import FileLimits

_TELL_EVERY_S: Final = 0.5
_LOGS_OF_CLIENTS: Final = ("urllib3", "boto3", "botocore")  # they would write signed addresses


@dataclass(frozen=True, slots=True)
class Task:
    """A job for the process."""

    job: FileJob
    endpointing: SegmenterConfig


@dataclass(frozen=True, slots=True)
class Progress:
    """Something was done since the last message, though no window is ready."""

    phase: Phase


class Answer(Enum):
    """What the process says of itself."""

    READY = auto()  # all is loaded


def serve(connection: Connection, limits: FileLimits) -> None:
    """Carry out one `Task` after the other until nobody is there; the process's main function."""
    leave_signals_to_the_worker()
    for name in _LOGS_OF_CLIENTS:
        logging.getLogger(name).setLevel(logging.WARNING)
    limit_memory(limits.max_memory_bytes)
    try:
        connection.send(Answer.READY)
        while True:
            task: Task = connection.recv()
            Sending(connection, task, limits).read()
    except (EOFError, OSError):
        return


class Sending(Reading):
    """A reading whose items go to the other end of a connection."""

    def __init__(self, connection: Connection, task: Task, limits: FileLimits) -> None:
        super().__init__(task.job, limits, task.endpointing)
        self._connection = connection
        self._phase: Phase | None = None
        self._told_at = 0.0

    def _put(self, item: Item) -> None:
        self._send(item)

    def _reached(self, phase: Phase) -> None:
        now = time.monotonic()
        if phase is not self._phase or now - self._told_at >= _TELL_EVERY_S:
            self._phase, self._told_at = phase, now
            self._send(Progress(phase))

    def _send(self, message: Item | Progress) -> None:
        try:
            self._connection.send(message)
        except OSError as error:  # nobody wants the rest
            raise Cancelled from error


def limit_memory(more_bytes: int) -> None:
    """Let this process have `more_bytes` of data over what it has now (on Linux)."""
    try:
        found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    except OSError:
        return
    if found is None:
        return
    most = int(found[1]) * 1024 + more_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
