"""The lane of recordings under test: one owner, a reader and acknowledgements on demand."""

from __future__ import annotations

from pathlib import Path

from oasr.audio.segmenter import SegmenterConfig
from tests.support.files import FileBench, ThreadReaders
from tests.support.lanes import FakeReader, FakeStates, LaneCounts
from worker.admission import Admission
from worker.assignment import Start
from worker.commits import CommitResult
from worker.file_lane import FileLane, FileLaneOptions
from worker.file_source import FileLimits
from worker.lane_tools import LaneTools
from worker.messages import Batch, RawMessage
from worker.recognizers import is_isolated


class FileLaneBench(FileBench):
    """A lane of one owner."""

    def __init__(
        self,
        workers: int = 1,
        answering: bool = True,
        roots: tuple[Path, ...] = (),
        readers: type[ThreadReaders] = ThreadReaders,
    ) -> None:
        super().__init__(answering=answering)
        self.lane_counts, self.reader = LaneCounts(), FakeReader("files")
        self.states = FakeStates()
        tools = LaneTools(
            lambda: "topic-id",
            self.states,
            lambda _timeout: self.outbox.acknowledge(),
            self.lane_counts,
            self.clock,
            1.0,
        )
        options = FileLaneOptions(
            readers(FileLimits(roots, 1 << 20, 600)),
            workers,
            SegmenterConfig(),
            Admission(("en",)),
            lambda partition, _model: self.apart if is_isolated(partition) else self.recognizer,  # type: ignore[arg-type,return-value]
        )
        self.lane = FileLane(tools, self.tools, options)
        self.lane.source = self.reader

    def assign(self, starts: list[Start]) -> None:
        """Partitions come, and the broker takes their first commits."""
        self.lane.assigned(starts)
        self.begin()

    def begin(self) -> None:
        """The first commits of owners that have not begun are acknowledged."""
        self.lane._committer.tick()
        for number in sorted(self.lane.waiting & self.lane.partitions.keys()):
            self.lane.commit_answered(number, CommitResult.DONE)
        self.first = self.reader.commits[-1]
        self.reader.commits.clear()
        self.reader.calls.clear()
        self.lane_counts.commits.clear()

    def read(self, *messages: RawMessage) -> None:
        self.reader.batches.append(Batch(list(messages)))
        self.lane.poll()

    def work(self) -> None:
        """Everything that is possible without another message."""
        for _ in range(20):
            self.lane.poll()
            self.recognizer.answer_all()
            self.outbox.acknowledge()

    def commit(self) -> tuple[int, str]:
        self.clock.now += 1
        self.lane.tick()
        _, offset, metadata = self.reader.commits[-1] if self.reader.commits else self.first
        return offset, metadata


def heir_of(bench: FileLaneBench, **more: int) -> FileLaneBench:
    """Another owner, who begins from what this one commits now."""
    offset, metadata = bench.commit()
    heir = FileLaneBench(**more)
    heir.assign([Start(0, offset, metadata)])
    return heir
