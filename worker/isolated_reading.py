"""Reads a recording in a child process: a file that kills its decoder kills nothing else.

Only jobs of partitions whose owners keep dying are read so. The pool thread waits for the process;
what it had handed over when the process died is not handed over again by the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Final

from oasr.audio.segmenter import SegmenterConfig
from worker.child_process import ChildProcess, leave_signals_to_the_worker
from worker.codec import CodecError, FileJob
from worker.engine_process import MOST_DEATHS
from worker.errors import ErrorCode
from worker.file_reader import Cancelled, Completed, Failed, Item, Reading
from worker.file_source import FileLimits

_LOOK_EVERY_S: Final = 0.2

Serve = Callable[[Connection, FileJob, FileLimits, SegmenterConfig], None]


def serve(
    connection: Connection, job: FileJob, limits: FileLimits, endpointing: SegmenterConfig
) -> None:
    """Send everything that is read; the process's main function."""
    leave_signals_to_the_worker()
    _Sending(connection, job, limits, endpointing).read()


class _Sending(Reading):
    """A reading whose items go to the other end of a connection."""

    def __init__(
        self,
        connection: Connection,
        job: FileJob,
        limits: FileLimits,
        endpointing: SegmenterConfig,
    ) -> None:
        super().__init__(job, limits, endpointing)
        self._connection = connection

    def _put(self, item: Item) -> None:
        try:
            self._connection.send(item)
        except OSError as error:  # nobody wants the rest
            raise Cancelled from error


class IsolatedReading(Reading):
    """Like `Reading`; `on_death` is called in the loop, by `take`."""

    def __init__(
        self,
        job: FileJob,
        limits: FileLimits,
        endpointing: SegmenterConfig,
        on_death: Callable[[], None],
        serve: Serve = serve,
    ) -> None:
        super().__init__(job, limits, endpointing)
        self._arguments = (job, limits, endpointing)
        self._on_death = on_death
        self._serve = serve
        self._deaths = threading.Semaphore(0)  # that `take` has not told

    def take(self) -> Item | None:
        """The next item, None if there is none yet."""
        while self._deaths.acquire(blocking=False):
            self._on_death()
        return super().take()

    def _read(self) -> Iterator[Item]:
        handed = 0
        for _ in range(MOST_DEATHS):
            for number, item in enumerate(self._items_of_a_process(), 1):
                if number > handed:
                    handed = number
                    yield item
                if isinstance(item, Completed | Failed):
                    return
            self._deaths.release()
        raise CodecError(
            ErrorCode.CRASHED_WORKER, f"reading the file ended a process {MOST_DEATHS} times"
        )

    def _items_of_a_process(self) -> Iterator[Item]:
        """All that one process sends until it ends."""
        child = ChildProcess("reader", self._serve, *self._arguments)
        try:
            while True:
                while not child.connection.poll(_LOOK_EVERY_S):
                    if self._cancelled.is_set():
                        raise Cancelled
                yield child.connection.recv()
        except (EOFError, OSError):
            return
        finally:
            child.kill()
