"""A lane of one partition as its owner has it: it reads a log on from where the group is."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from oasr.audio.segmenter import SegmenterConfig
from tests.support.lanes import FakeReader
from tests.support.partitions import TOPIC, Committed, Counts, HashingSpeech, Outbox
from worker.admission import Admission
from worker.assignment import Start
from worker.backpressure import Backpressure
from worker.chunk_lane import ChunkLane
from worker.cloudevents import Identity, ModelName
from worker.codec import ChunkDefaults
from worker.lane_tools import LaneTools
from worker.messages import Batch, RawMessage
from worker.partition import Surroundings
from worker.ports import Limits
from worker.publisher import Publisher
from worker.session_map import key_hash


class OwnedLane:
    """The lane, its reader and its engine, from an assignment on."""

    def __init__(
        self,
        tools: LaneTools,
        log: list[RawMessage],
        committed: Committed | None,
        outbox: Outbox,
        generation: int = 1,
        pressure: Backpressure | None = None,
        hash_key: Callable[[bytes], int] = key_hash,
    ) -> None:
        """What a pending cut causes is committed with it where there are transactions.

        Time stands still for sessions, unless there is a backpressure: then it is the lane's.
        """
        self.log = log
        self.reader, self.speech = FakeReader(TOPIC), HashingSpeech()
        self.reader.generation = generation
        self.counts = Counts()
        surroundings = Surroundings(
            topic=TOPIC,
            speech=lambda _owner: self.speech,
            records=Publisher(Identity("group", ModelName("m", "d")), lambda: 1_700_000_000_000),
            outbox=outbox,
            counters=self.counts,
            now=(lambda: 1000.0) if pressure is None else tools.now,
            now_ms=lambda: 1_700_000_000_000,
            defaults=ChunkDefaults(),
            limits=Limits(),
            endpointing=SegmenterConfig(),
            admission=Admission(("en",)),
            hash_key=hash_key,
            cuts_at_once=tools.transactions is not None,
        )
        self.lane = ChunkLane(tools, surroundings, pressure or Backpressure(1e9, 1e8, 0, tools.now))
        self.lane.source = self.reader
        self.assign(committed)

    def assign(self, committed: Committed | None) -> None:
        """The partition is the lane's, from what the group committed on."""
        offset = 0 if committed is None else committed.offset
        metadata = None if committed is None else committed.metadata
        self.position = bisect_left([raw.offset for raw in self.log], offset)
        self.lane.assigned([Start(0, offset, metadata)])

    def deliver(self, number: int) -> None:
        """The next messages of the log reach the lane, if it reads."""
        if 0 in self.reader.paused:
            return
        messages = self.log[self.position : self.position + number]
        self.position += len(messages)
        at_end = frozenset({0}) if self.position == len(self.log) else frozenset()
        self.reader.batches.append(Batch(messages, at_end))
        self.lane.poll(0)
