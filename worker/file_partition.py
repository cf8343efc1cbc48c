"""One assigned partition of the file topic: which jobs are open and what may be committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from worker.commits import Commit
from worker.file_map import FileMap, Samples, encode_file_metadata
from worker.messages import RawMessage
from worker.metadata import Place
from worker.offsets import OffsetTracker


class Job(Protocol):
    """A job that is open, as far as the map goes."""

    @property
    def published(self) -> Samples:
        """Up to which sample of each channel its segments are safe."""


class FilePartition:
    """Tracker and map of a partition of jobs; a job is open until its completed event is safe."""

    def __init__(
        self,
        place: Place,
        restored: FileMap | None,
        start: Callable[[FilePartition, RawMessage], None],
    ) -> None:
        """`start` begins the job of a message that no former owner finished."""
        self.number = place.partition
        self.alive = True
        self.wants_commit = False
        self.start_counter = 0
        self.tracker = OffsetTracker(place.committed_offset)
        self.topic_id = place.topic_id
        self._start = start
        self._finished = set(() if restored is None else restored.finished)
        self._published = dict(() if restored is None else restored.published)
        self._jobs: dict[int, Job] = {}

    def receive(self, raw: RawMessage) -> None:
        """Take a message; what a former owner finished is done at once."""
        self.tracker.received(raw.offset)
        if raw.offset in self._finished:
            self.tracker.done(raw.offset)
        else:
            self._start(self, raw)

    def end_reached(self) -> None:
        """Files have no time-outs."""

    def published_before(self, offset: int) -> Samples:
        """Up to which sample of each channel a former owner published the file of a message."""
        return self._published.get(offset, ())

    def follow(self, offset: int, job: Job) -> None:
        """The message's job says from now on how far it is."""
        self._published.pop(offset, None)
        self._jobs[offset] = job

    def done(self, offset: int) -> None:
        """Everything that the message caused is acknowledged."""
        self._jobs.pop(offset, None)
        if self.tracker.done(offset):
            self._finished.add(offset)

    def drop(self) -> None:
        """The assignment is over."""
        self.alive = False

    def guarded(self, call: Callable[[], None]) -> Callable[[], None]:
        """`call`, unless the assignment is over by then."""

        def run() -> None:
            if self.alive:
                call()

        return run

    def prepare_commit(self) -> Commit:
        """The watermark, the finished offsets above it, and how far the open jobs are."""
        watermark = self.tracker.watermark
        self._finished = {offset for offset in self._finished if offset > watermark}
        followed = {offset: job.published for offset, job in self._jobs.items()}
        published = {offset: far for offset, far in followed.items() if any(far)}
        contents = FileMap(
            finished=tuple(sorted(self._finished)),
            published=tuple(sorted((self._published | published).items())),
        )
        metadata = encode_file_metadata(
            contents, self.topic_id, self.number, watermark, self.start_counter
        )
        return Commit(watermark, metadata, lambda: None)
