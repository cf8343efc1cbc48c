"""The lane of recordings: its source, its open jobs and the pool that reads files."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from oasr.audio.segmenter import SegmenterConfig
from worker import dead_letters
from worker.assignment import Start
from worker.chunk_lane import LaneTools, Reader
from worker.codec import CodecError, FileJob, parse_file
from worker.commits import CommitResult, Committer
from worker.dead_letters import Refusal
from worker.errors import ErrorCode
from worker.file_map import FileMap, decode_file_metadata
from worker.file_partition import FilePartition
from worker.file_reader import Reading
from worker.file_run import FileRun, FileState, FileTools
from worker.file_source import FileLimits
from worker.messages import RawMessage
from worker.partition import endpointing_of
from worker.session_map import MapError

logger = logging.getLogger(__name__)

ACK_WAIT_S = 0.5
WAITING_PER_WORKER = 2  # jobs that are read and wait for the pool, so that it never idles


@dataclass(frozen=True, slots=True)
class FileLaneOptions:
    """What the lane may read, and how."""

    limits: FileLimits
    workers: int
    endpointing: SegmenterConfig
    languages: tuple[str, ...]


class FileLane:
    """Takes file messages to the pool and their windows to the engine."""

    def __init__(self, tools: LaneTools, files: FileTools, options: FileLaneOptions) -> None:
        self.partitions: dict[int, FilePartition] = {}
        self.source: Reader | None = None  # set once the source, which calls back here, exists
        self._tools = tools
        self._files = files
        self._options = options
        self._pool = ThreadPoolExecutor(options.workers, thread_name_prefix="files")
        self._runs: list[tuple[FilePartition, FileRun]] = []
        self._waiting: deque[tuple[FilePartition, FileRun, Reading]] = deque()
        self._draining = False
        self._committer = Committer(
            self._send_commit, tools.counters, tools.now, tools.commit_interval_s
        )

    # -- the loop -----------------------------------------------------------------------------

    @property
    def open_jobs(self) -> int:
        """Jobs that are not finished."""
        return len(self._runs) + len(self._waiting)

    @property
    def running_jobs(self) -> int:
        """Jobs that are being read or decoded."""
        return len(self._runs)

    def oldest_age_s(self) -> float:
        """How long ago the oldest open job was sent."""
        sent_ms = [run.raw.timestamp_ms for _, run in self._runs if run.raw.timestamp_ms]
        sent_ms += [run.raw.timestamp_ms for _, run, _ in self._waiting if run.raw.timestamp_ms]
        now_ms = self._files.now_ms()
        return max(0.0, (now_ms - min(sent_ms, default=now_ms)) / 1000)

    def poll(self) -> int:
        """Read messages, start jobs and feed the engine, as far as there is room."""
        if self.source is None:
            return 0
        messages = self.source.poll(0)
        for raw in messages:
            partition = self.partitions.get(raw.partition)
            if partition is not None and partition.alive:
                self._receive(partition, raw)
        self._advance()
        self._press()
        return len(messages)

    def tick(self) -> None:
        """Commits, as far as they are due."""
        self._committer.tick()

    def drain(self) -> None:
        """Start nothing more; jobs in progress go on."""
        self._draining = True
        self._waiting.clear()
        if self.source is not None:
            self.source.pause(sorted(self.partitions))

    def close(self) -> None:
        """Hand over what is open and leave the group."""
        if self.source is not None:
            self.source.close()
            self.source = None
        for _, run in self._runs:
            run.drop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # -- the source's calls -------------------------------------------------------------------

    def assigned(self, starts: Sequence[Start]) -> None:
        topic_id = self._tools.topic_id() if starts else ""
        for start in starts:
            partition = FilePartition(
                topic_id, start.partition, start.offset, self._restored(start, topic_id)
            )
            self.partitions[start.partition] = partition
            self._committer.begin(partition)
        if self._draining and self.source is not None:
            self.source.pause([start.partition for start in starts])
        self._tools.counters.rebalance("assigned", len(self.partitions))

    def revoked(self, partitions: Sequence[int]) -> None:
        leaving = [self.partitions[n] for n in partitions if n in self.partitions]
        if leaving:
            self._tools.flush(ACK_WAIT_S)
        for partition in leaving:
            if partition.alive:
                self._committer.commit_last(partition)
        self._leave(leaving, "revoked")

    def lost(self, partitions: Sequence[int]) -> None:
        leaving = [self.partitions[n] for n in partitions if n in self.partitions]
        self._leave(leaving, "lost")

    def end_reached(self, partition: int) -> None:
        """Files have no time-outs."""

    def commit_answered(self, partition: int, result: CommitResult) -> None:
        self._committer.answered(partition, result)
        owned = self.partitions.get(partition)
        if result is CommitResult.LOST and owned is not None:
            self._abandon(owned)

    # -- inside -------------------------------------------------------------------------------

    def _receive(self, partition: FilePartition, raw: RawMessage) -> None:
        self._files.counters.consumed(raw.topic)
        if not partition.received(raw.offset):
            self._files.counters.processed(raw.topic, "skipped")
            return
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
        endpointing = endpointing_of(job.options, self._options.endpointing)
        reading = Reading(job, self._options.limits, endpointing)
        run = FileRun(raw, reading, self._files_of(partition), self._finisher(partition, raw))
        self._waiting.append((partition, run, reading))

    def _admitted(self, job: FileJob) -> FileJob:
        """Refuse what the model cannot honour, by name."""
        language = job.options.language
        if language is None or language.split("-")[0].lower() in self._options.languages:
            return job
        if not job.options.lenient:
            raise CodecError(ErrorCode.OPTION_UNSUPPORTED, "the model does not know the language")
        warning = f"{ErrorCode.OPTION_UNSUPPORTED.value}:language"
        options = replace(job.options, language=None, warnings=(*job.options.warnings, warning))
        return replace(job, options=options)

    def _advance(self) -> None:
        while self._waiting and len(self._runs) < self._options.workers:
            partition, run, reading = self._waiting.popleft()
            if partition.alive:
                self._runs.append((partition, run))
                self._pool.submit(reading.read)
        for _, run in self._runs:
            run.advance()
        self._runs = [
            (p, run)
            for p, run in self._runs
            if run.state in (FileState.READING, FileState.FINISHING)
        ]

    def _press(self) -> None:
        """Read on only while the pool is short of jobs."""
        if self.source is None or self._draining:
            return
        most = self._options.workers * WAITING_PER_WORKER
        if len(self._waiting) >= most:
            self.source.pause(sorted(self.partitions))
        elif not self._waiting:
            self.source.resume(sorted(self.source.paused))

    def _files_of(self, partition: FilePartition) -> FileTools:
        """The tools of a job, whose acknowledgements count while the assignment lasts."""
        send = self._files.send
        return replace(
            self._files,
            send=lambda record, on_ack: send(
                record, None if on_ack is None else partition.guarded(on_ack)
            ),
        )

    def _finisher(self, partition: FilePartition, raw: RawMessage) -> Callable[[], None]:
        def finish() -> None:
            partition.done(raw.offset)
            self._files.counters.processed(raw.topic, "ok")

        return finish

    def _refuse(self, partition: FilePartition, raw: RawMessage, error: CodecError) -> None:
        self._files.counters.dead_letter(error.code)
        refusal = Refusal(error.code, error.message, "codec")
        record = dead_letters.build(raw, refusal, self._files.now_ms())

        def acknowledged() -> None:
            partition.done(raw.offset)
            self._files.counters.processed(raw.topic, "dead_letter")

        self._files.send(record, partition.guarded(acknowledged))

    def _restored(self, start: Start, topic_id: str) -> FileMap | None:
        if start.metadata is None:
            return None
        try:
            contents, _ = decode_file_metadata(
                start.metadata, topic_id, start.partition, start.offset
            )
        except MapError as error:
            logger.warning(
                "file partition %d: the map is ignored, finished files run again: %s",
                start.partition,
                error.reason,
            )
            self._tools.counters.map_ignored()
            return None
        return contents

    def _abandon(self, partition: FilePartition) -> None:
        partition.drop()
        for owner, run in self._runs:
            if owner is partition:
                run.drop()
        self._waiting = deque(item for item in self._waiting if item[0] is not partition)

    def _leave(self, leaving: Sequence[FilePartition], event: str) -> None:
        for partition in leaving:
            self._abandon(partition)
            self._committer.end(partition)
            self._tools.counters.forget(partition.number)
            del self.partitions[partition.number]
        self._tools.counters.rebalance(event, len(self.partitions))

    def _send_commit(self, partition: int, offset: int, metadata: str) -> None:
        if self.source is not None:
            self.source.commit(partition, offset, metadata)
