"""A partition under test: a log, an engine that hashes audio, acknowledgements on demand."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson

from oasr.audio.segmenter import SegmenterConfig
from oasr.engine.request import RequestOutput
from worker.admission import Admission
from worker.cloudevents import Identity, ModelName
from worker.codec import ChunkDefaults
from worker.commits import Commit
from worker.errors import ErrorCode
from worker.messages import Kind, OutRecord, RawMessage
from worker.metadata import Place
from worker.partition import Partition, Surroundings
from worker.ports import Limits
from worker.publisher import Publisher
from worker.second_pass import SecondPasses
from worker.segments import Segment
from worker.session_map import key_hash
from worker.session_map_codec import decode_metadata
from worker.tracing import Work

TOPIC = "chunks"
TOPIC_ID = "topic-id"


class HashingSpeech:
    """Keeps the engine's contract; the text of a segment is a digest of exactly its audio."""

    def __init__(self) -> None:
        self.open_requests: dict[str, tuple[Segment, list[Any]]] = {}
        self.finished: list[tuple[Segment, RequestOutput]] = []
        self.dropped: list[str] = []
        self.failing = False
        self.silent = False  # whether it understands nothing
        self.kept: dict[int, int] = {}  # samples that a segment cut by length keeps, by its index
        self._count = 0

    def open(self, segment: Segment, priority: int) -> str:
        del priority
        self._count += 1
        self.open_requests[str(self._count)] = (segment, [])
        return str(self._count)

    def feed(self, request_id: str, samples: Any, keep_samples: int | None, last: bool) -> None:
        segment, parts = self.open_requests[request_id]
        parts.append(samples)
        if last:
            del self.open_requests[request_id]
            audio = np.concatenate(parts)
            assert audio.dtype == np.float32
            digest = hashlib.sha256(audio.tobytes() + str(keep_samples).encode()).hexdigest()[:12]
            text = "" if self.silent else f"{len(audio)} {digest}"
            if keep_samples is not None:
                self.kept[segment.info.index] = keep_samples
            output = RequestOutput(request_id, text, finished=True, finish_reason="stop")
            self.finished.append((segment, output))

    def drop(self, request_id: str) -> None:
        self.open_requests.pop(request_id, None)
        self.dropped.append(request_id)

    def revise(self, segment: Segment, text: str, decoded_samples: int) -> None:
        """Tell what an open segment sounds like so far."""
        segment.receive(RequestOutput("", text, decoded_samples=decoded_samples))

    def fail(self, segment: Segment, text: str, stage: str = "forward") -> None:
        """Give up an open segment that says `text` so far."""
        (request_id,) = [r for r, (s, _) in self.open_requests.items() if s is segment]
        del self.open_requests[request_id]
        segment.receive(
            RequestOutput(request_id, text, finished=True, finish_reason="error", error_stage=stage)
        )

    def step(self, most: int = 1_000_000) -> None:
        """Deliver at most so many outputs; every open request fails first if `failing`."""
        for segment, _ in list(self.open_requests.values()) if self.failing else ():
            self.fail(segment, "half")
        ready, self.finished = self.finished[:most], self.finished[most:]
        for segment, output in ready:
            segment.receive(output)


class Outbox:
    """Records that were sent; the broker has them once `acknowledge` says so."""

    def __init__(self, answering: bool = True) -> None:
        self.sent: list[OutRecord] = []
        self._answering = answering
        self.waiting: list[Callable[[], None]] = []
        self.on_topic: list[OutRecord] = []
        self.silent = False  # nothing is ever acknowledged

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        self.sent.append(record)
        if record.kind is Kind.PARTIAL:
            return
        # What was sent may reach the topic though its sender never hears of it.
        self.on_topic.append(record)
        if on_ack is not None:
            self.waiting.append(on_ack)

    def acknowledge(self, most: int = 1_000_000) -> None:
        while self.waiting and most and self._answering:
            most -= 1
            self.waiting.pop(0)()


class Counts:
    """Counters that remember."""

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.codes: list[ErrorCode] = []
        self.without_text = 0
        self.works: list[Work] = []

    def consumed(self, topic: str) -> None: ...

    def processed(self, topic: str, outcome: str) -> None:
        del topic
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def dead_letter(self, code: ErrorCode) -> None:
        self.codes.append(code)

    def audio(self, outcome: str, seconds: float) -> None: ...

    def segment(self, reason: str, has_text: bool) -> None:
        del reason
        self.without_text += not has_text

    def final_acknowledged(self, latency_s: float) -> None: ...

    def worked(self, work: Work) -> None:
        self.works.append(work)


@dataclass
class Committed:
    """What the group has committed on the partition."""

    offset: int = 0
    metadata: str = ""


@dataclass
class Desk:
    """One owner of the partition after another; the log and the commits outlive them."""

    log: list[RawMessage]
    limits: Limits = field(default_factory=Limits)
    committed: Committed = field(default_factory=Committed)
    answering: bool = True  # whether the broker acknowledges records at all
    outbox: Outbox = field(init=False)
    counts: Counts = field(default_factory=Counts)
    speech: HashingSpeech = field(default_factory=HashingSpeech)
    clock_s: float = 1000.0
    records: list[OutRecord] = field(default_factory=list)  # on the topics, of all owners
    position: int = 0
    endpointing: SegmenterConfig = field(default_factory=SegmenterConfig)
    hash_key: Callable[[bytes], int] = key_hash
    cuts_at_once: bool = False
    second_passes: Callable[[], SecondPasses | None] = lambda: None  # of the next owner

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.answering)
        self.partition = self._assign()

    def take_over(self) -> None:
        """The owner dies without a word; another one begins from the commit."""
        self.records += self.outbox.on_topic
        self.partition.alive = False
        self.outbox = Outbox(self.answering)
        self.speech = HashingSpeech()
        self.partition = self._assign()

    def deliver(self, number: int = 1) -> None:
        """The next messages of the log reach the partition."""
        for raw in self.log[self.position : self.position + number]:
            self.partition.receive(raw)
        self.position = min(len(self.log), self.position + number)
        if self.position == len(self.log):
            self.partition.end_reached()

    def arrive(self, *messages: RawMessage) -> None:
        """Messages come to the end of the log and, with all before them, reach the partition."""
        for raw in messages:
            offset = self.log[-1].offset + 1 if self.log else 0
            self.log.append(replace(raw, offset=offset))
        self.deliver(len(self.log))

    def wait(self, seconds: float) -> None:
        """Nothing comes for so long."""
        self.clock_s += seconds
        self.partition.polled()
        self.partition.tick()

    def prepare(self) -> Commit:
        self.partition.wants_commit = False
        return self.partition.prepare_commit()

    def acknowledge_commit(self, commit: Commit) -> None:
        self.committed = Committed(commit.offset, commit.metadata)
        if self.partition.alive:
            commit.on_done()

    def commit(self) -> None:
        self.acknowledge_commit(self.prepare())

    def settle(self) -> None:
        """Everything that can happen without another message happens."""
        for _ in range(20):
            self.speech.step()
            self.outbox.acknowledge()
            self.partition.tick()
            self.commit()

    def run(self) -> None:
        """The whole log, undisturbed."""
        while self.position < len(self.log):
            self.deliver()
            self.speech.step()
            self.outbox.acknowledge()
        self.settle()

    def all_records(self) -> list[OutRecord]:
        return self.records + self.outbox.on_topic

    def finals(self) -> dict[str, set[str]]:
        """Every text that was published for a final's id."""
        return contents(self.all_records(), Kind.FINAL)

    def events(self) -> dict[str, set[str]]:
        return contents(self.all_records(), Kind.EVENT)

    def told(self, event: str) -> list[dict[str, Any]]:
        """The bodies of all events of a name, in the order of their first publication."""
        found = {}
        for record in self.all_records():
            if record.kind is Kind.EVENT:
                body = orjson.loads(record.value)
                if body["event"] == event:
                    found.setdefault(header(record, "ce_id"), body)
        return list(found.values())

    def transcripts(self, kind: Kind = Kind.FINAL) -> list[dict[str, Any]]:
        """The bodies of all finals, or of all partials that this owner sent."""
        records = self.all_records() if kind is Kind.FINAL else self.outbox.sent
        return [orjson.loads(record.value) for record in records if record.kind is kind]

    def dead_letters(self) -> list[OutRecord]:
        return [record for record in self.all_records() if record.kind is Kind.DEAD_LETTER]

    def _assign(self) -> Partition:
        contents_, _ = decode_metadata(self.committed.metadata, TOPIC_ID, 0, self.committed.offset)
        self.position = bisect_left([raw.offset for raw in self.log], self.committed.offset)
        surroundings = Surroundings(
            topic=TOPIC,
            speech=lambda _number: self.speech,
            records=Publisher(Identity("group", ModelName("m", "d")), lambda: 1_700_000_000_000),
            outbox=self.outbox,
            counters=self.counts,
            now=lambda: self.clock_s,
            now_ms=lambda: 1_700_000_000_000,
            defaults=ChunkDefaults(),
            limits=self.limits,
            endpointing=self.endpointing,
            admission=Admission(("en",)),
            hash_key=self.hash_key,
            second_passes=self.second_passes(),
            cuts_at_once=self.cuts_at_once,
        )
        place = Place(TOPIC_ID, 0, self.committed.offset)
        return Partition(place, surroundings, contents_)


def header(record: OutRecord, name: str) -> str:
    """The last value of a header."""
    values = [value for key, value in record.headers if key == name]
    assert values
    assert values[-1] is not None
    return values[-1].decode()


def contents(records: list[OutRecord], kind: Kind) -> dict[str, set[str]]:
    """What was said under each id, as far as the equality promise goes."""
    said: dict[str, set[str]] = {}
    for record in records:
        if record.kind is kind:
            body = orjson.loads(record.value)
            for outside in ("latency", "source"):
                body.pop(outside, None)
            text = orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()
            said.setdefault(header(record, "ce_id"), set()).add(text)
    return said
