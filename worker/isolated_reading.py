"""Reads recordings in child processes: a file that kills or holds up its decoder harms no other.

The pool thread of a job waits for the process; what the process had handed over when it died is
not handed over again by the next one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Final

from oasr.audio.segmenter import SegmenterConfig
from worker.child_process import ChildProcess
from worker.codec import CodecError, FileJob
from worker.engine_process import MOST_DEATHS
from worker.errors import ErrorCode
from worker.file_reader import Cancelled, Completed, Failed, Item, Phase, Reading
from worker.file_source import FileLimits
from worker.reader_process import Answer, Progress, Task, serve

_LOOK_EVERY_S: Final = 0.2
_START_LIMIT_S: Final = 120
_FETCH_GRACE_S: Final = 5  # a process should have given up by itself
_MOST_JOBS: Final = 1_000  # of one process, so that nothing leaks for ever

Serve = Callable[[Connection, FileLimits], None]


class _Reader:
    """A process, and how many jobs it has had."""

    def __init__(self, serve: Serve, limits: FileLimits) -> None:
        self.process = ChildProcess("reader", serve, limits)
        self.jobs = 0
        self.is_ready = False  # to take what is sent


class Readers:
    """The processes that wait for a file; as many are made as there are files at once."""

    def __init__(
        self, limits: FileLimits, on_death: Callable[[], None], serve: Serve = serve
    ) -> None:
        """`on_death` is called in the loop when a process has died over a file."""
        self.limits = limits
        self.on_death = on_death
        self._serve = serve
        self._idle: queue.SimpleQueue[_Reader] = queue.SimpleQueue()

    def reading(self, job: FileJob, endpointing: SegmenterConfig) -> Reading:
        """A job that will be read in one of the processes."""
        return IsolatedReading(job, endpointing, self)

    def take(self) -> _Reader:
        """A process that waits for a job, for one thread."""
        while True:
            try:
                reader = self._idle.get_nowait()
            except queue.Empty:
                return _Reader(self._serve, self.limits)
            if reader.process.exit_status is None:
                return reader
            reader.process.kill()

    def give_back(self, reader: _Reader) -> None:
        """The process has ended its job in order."""
        if reader.jobs < _MOST_JOBS:
            self._idle.put(reader)
        else:
            reader.process.kill()

    def close(self) -> None:
        """End the processes that wait."""
        while True:
            try:
                self._idle.get_nowait().process.kill()
            except queue.Empty:
                return


class _Watch:
    """Ends a wait for a process that takes too long; time in which nobody waits does not count."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._phase = Phase.STARTING
        self._waited_s = 0.0  # in this phase
        self._still_s = 0.0  # since the last message

    def heard(self, phase: Phase | None = None) -> None:
        self._still_s = 0.0
        if phase is not None and phase is not self._phase:
            self._phase, self._waited_s = phase, 0.0

    def waited(self, seconds: float) -> None:
        """Raises CodecError when it was too much."""
        self._waited_s += seconds
        self._still_s += seconds
        limits = self._limits
        if (
            self._phase is Phase.FETCHING
            and self._waited_s > limits.fetch_timeout_s + _FETCH_GRACE_S
        ):
            raise CodecError(
                ErrorCode.FETCH_UNAVAILABLE, f"fetching took {self._waited_s:.0f} s and was ended"
            )
        if self._phase is Phase.STARTING and self._still_s > _START_LIMIT_S:
            raise EOFError  # as if it had died
        if self._phase is not Phase.DECODING:
            return
        if self._waited_s > limits.decode_timeout_s:
            raise CodecError(
                ErrorCode.DECODE_TIMEOUT, f"decoding took {self._waited_s:.0f} s and was ended"
            )
        if self._still_s > limits.stall_timeout_s:
            raise CodecError(
                ErrorCode.DECODE_TIMEOUT,
                f"decoding stood still for {self._still_s:.0f} s and was ended",
            )


class IsolatedReading(Reading):
    """Like `Reading`, but a process does it."""

    def __init__(self, job: FileJob, endpointing: SegmenterConfig, readers: Readers) -> None:
        super().__init__(job, readers.limits, endpointing)
        self._task = Task(job, endpointing)
        self._readers = readers
        self._deaths = threading.Semaphore(0)  # that `take` has not told
        self._is_done = False  # the process is free for another file

    def take(self) -> Item | None:
        """The next item, None if there is none yet."""
        while self._deaths.acquire(blocking=False):
            self._readers.on_death()
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
        """All that one process sends until it ends, or is ended for taking too long."""
        reader = self._readers.take()
        reader.jobs += 1
        try:
            yield from self._answers(reader)
        except (EOFError, OSError):
            return
        finally:
            if self._is_done:
                self._readers.give_back(reader)
            else:
                reader.process.kill()

    def _answers(self, reader: _Reader) -> Iterator[Item]:
        connection = reader.process.connection
        watch = _Watch(self._limits)
        self._is_done = False
        if reader.is_ready:
            connection.send(self._task)
        while not self._is_done:
            before = time.monotonic()
            is_there = False
            while not is_there:
                is_there = connection.poll(_LOOK_EVERY_S)
                if self._cancelled.is_set():
                    raise Cancelled
                now = time.monotonic()
                watch.waited(now - before)
                before = now
            message = connection.recv()
            if isinstance(message, Answer):
                reader.is_ready = True
                connection.send(self._task)
                continue
            if isinstance(message, Progress):
                watch.heard(message.phase)
                continue
            watch.heard()
            # A process that ran out of memory is not trusted with another file.
            self._is_done = isinstance(message, Completed) or (
                isinstance(message, Failed) and message.code is not ErrorCode.DECODE_MEMORY
            )
            yield message
            if isinstance(message, Failed):
                return
