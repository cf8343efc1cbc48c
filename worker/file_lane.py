"""The lane of recordings: its source, its open jobs and the pool that reads files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from oasr.audio.segmenter import SegmenterConfig
from worker import dead_letters
from worker.admission import Admits
from worker.codec import CodecError, FileJob, parse_file
from worker.dead_letters import Refusal
from worker.file_map import MAGIC, decode_file_metadata
from worker.file_partition import FilePartition
from worker.file_reader import Reading
from worker.file_run import FileRun, FileTools, Send
from worker.lane import Lane
from worker.lane_tools import LaneTools
from worker.loss import Loss, event
from worker.messages import RawMessage
from worker.metadata import Place
from worker.recognizer import Recognizer

WAITING_PER_WORKER = 2  # jobs that are read and wait for the pool, so that it never idles


class Readers(Protocol):
    """Where files are read."""

    def reading(self, job: FileJob, endpointing: SegmenterConfig) -> Reading:
        """A job that is not read yet."""

    def close(self) -> None:
        """No more will be read."""


@dataclass(frozen=True, slots=True)
class FileLaneOptions:
    """What the lane may read, and how."""

    readers: Readers
    workers: int
    endpointing: SegmenterConfig
    admission: Admits
    recognizer_of: Callable[[FilePartition, str | None], Recognizer]  # by the job's model


@dataclass(frozen=True, slots=True)
class _Job:
    """A job on the partition that its message came from."""

    partition: FilePartition
    run: FileRun
    reading: Reading


class FileLane(Lane[FilePartition]):
    """Takes file messages to the pool and their windows to the engine."""

    magic = MAGIC

    def __init__(self, tools: LaneTools, files: FileTools, options: FileLaneOptions) -> None:
        super().__init__(tools)
        self._files = files
        self._options = options
        self._pool = ThreadPoolExecutor(options.workers, thread_name_prefix="files")
        self._runs: list[_Job] = []
        self._waiting: deque[_Job] = deque()
        self._draining = False
        self._sends: dict[int, Send] = {}  # where the records of our partitions go

    @property
    def open_jobs(self) -> int:
        """Jobs that are not finished."""
        return len(self._runs) + len(self._waiting)

    @property
    def running_jobs(self) -> int:
        """Jobs that are being read or decoded."""
        return len(self._runs)

    def progress(self) -> Iterator[tuple[str, float]]:
        """Ids of the open jobs, those in progress first, and how many seconds of each are told."""
        for job in (*self._runs, *self._waiting):
            yield job.run.job.file_id, job.run.published_s

    def oldest_age_s(self) -> float:
        """How long ago the oldest open job was sent."""
        jobs = (*self._runs, *self._waiting)
        now_ms = self._files.now_ms()
        sent_ms = [job.run.raw.timestamp_ms for job in jobs if job.run.raw.timestamp_ms]
        return max(0.0, (now_ms - min(sent_ms, default=now_ms)) / 1000)

    def poll(self, timeout_s: float = 0.0) -> int:
        """Read messages, start jobs and feed the engine, as far as there is room.

        Waits at most `timeout_s` for a message where there is none.
        """
        received = self._receive(timeout_s)
        self._advance()
        self._press()
        return received

    def tick(self) -> None:
        """Commits, as far as they are due."""
        self._committer.tick()

    def drain(self) -> None:
        """Start nothing more; jobs in progress go on."""
        self._draining = True
        self._waiting.clear()
        self._press()

    def close(self) -> None:
        """Hand over what is open and leave the group."""
        super().close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._options.readers.close()

    # -- inside -------------------------------------------------------------------------------

    def _open(self, place: Place, metadata: str | None) -> FilePartition:
        contents, _ = decode_file_metadata(metadata, *place)
        outbox = self._outbox_of(place.partition)
        self._sends[place.partition] = self._files.send if outbox is None else outbox.send
        return FilePartition(place, contents, self._start)

    def _tell_loss(self, partition: FilePartition, loss: Loss) -> None:
        record = event(self._files.identity, loss, self._files.now_ms())
        self._tools_of(partition).send(record, None)

    def _closed(self, partition: FilePartition) -> None:
        for job in self._runs:
            if job.partition is partition:
                job.run.drop()
        self._waiting = deque(job for job in self._waiting if job.partition is not partition)

    def _start(self, partition: FilePartition, raw: RawMessage) -> None:
        self._files.counters.consumed(raw.topic)
        try:
            job = parse_file(raw)
            if job is not None:
                job = self._admitted(job)
        except CodecError as error:
            self._refuse(partition, raw, error)
            return
        if job is None:
            partition.done(raw.offset)
            self._files.counters.processed(raw.topic, "tombstone")
            return
        endpointing = job.options.endpointing.over(self._options.endpointing)
        reading = self._options.readers.reading(job, endpointing)
        finish = self._finisher(partition, raw, "ok")
        before = partition.published_before(raw.offset)
        tools = self._tools_of(partition, job.options.model)
        run = FileRun(raw, reading, tools, finish, before)
        partition.follow(raw.offset, run)
        self._waiting.append(_Job(partition, run, reading))

    def _admitted(self, job: FileJob) -> FileJob:
        """Refuse what no model can honour, by name."""
        return replace(job, options=self._options.admission.admit(job.options))

    def _advance(self) -> None:
        while self._waiting and not self._draining and len(self._runs) < self._options.workers:
            job = self._waiting.popleft()
            self._runs.append(job)
            self._pool.submit(job.reading.read)
        for job in self._runs:
            job.run.advance()
        self._runs = [job for job in self._runs if job.run.is_open]

    def _press(self) -> None:
        """Read on only while the pool is short of jobs."""
        if self.source is None:
            return
        most = self._options.workers * WAITING_PER_WORKER
        if self._draining or len(self._waiting) >= most:
            self.source.pause(sorted(self.partitions))
        elif not self._waiting:
            self.source.resume(sorted(self.source.paused - self.waiting))

    def _tools_of(self, partition: FilePartition, model: str | None = None) -> FileTools:
        """The tools of a job, whose acknowledgements count while the assignment lasts."""
        send = self._sends[partition.number]
        return replace(
            self._files,
            recognizer=self._options.recognizer_of(partition, model),
            send=lambda record, on_ack: send(
                record, None if on_ack is None else partition.guarded(on_ack)
            ),
        )

    def _finisher(
        self, partition: FilePartition, raw: RawMessage, outcome: str
    ) -> Callable[[], None]:
        def finish() -> None:
            partition.done(raw.offset)
            self._files.counters.processed(raw.topic, outcome)

        return finish

    def _refuse(self, partition: FilePartition, raw: RawMessage, error: CodecError) -> None:
        self._files.counters.dead_letter(error.code)
        refusal = Refusal(error.code, error.message, "codec")
        record = dead_letters.build(raw, refusal, self._files.now_ms())
        finish = self._finisher(partition, raw, "dead_letter")
        self._sends[partition.number](record, partition.guarded(finish))
