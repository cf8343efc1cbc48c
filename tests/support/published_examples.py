"""The examples in `schemas/examples/`, and a lane with the real model that answers them."""

from __future__ import annotations

import base64
import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oasr.engine.engine import ASREngine
from tests.support.partitions import TOPIC_ID, Desk
from worker.admission import Admission
from worker.cloudevents import Identity, ModelName
from worker.codec import ChunkDefaults
from worker.messages import Kind, OutRecord, RawMessage
from worker.metadata import Place
from worker.partition import Partition, Surroundings
from worker.publisher import Publisher
from worker.recognizer import Recognizer
from worker.segments import Segment
from worker.session_map_codec import decode_metadata

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"
CHUNKS = "oasr.audio.chunks"
NOW_MS = 1_767_225_600_000  # the first moment of 2026
TOPICS = {
    Kind.FINAL: "oasr.transcripts",
    Kind.PARTIAL: "oasr.transcripts.partial",
    Kind.EVENT: "oasr.events",
    Kind.DEAD_LETTER: "oasr.dead-letters",
}


def example(name: str) -> dict[str, Any]:
    """The content of `schemas/examples/<name>.json`."""
    content: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return content


def raw(said: dict[str, Any], offset: int) -> RawMessage:
    """A message of an example as it lies on its topic."""
    value: bytes | None = None
    if "value_base64" in said:
        value = base64.b64decode(said["value_base64"])
    elif said["value"] is not None:
        value = json.dumps(said["value"]).encode()
    headers = tuple((name, text.encode()) for name, text in said["headers"].items())
    return RawMessage(said["topic"], 0, offset, NOW_MS, said["key"].encode(), value, headers)


def shown(record: OutRecord) -> dict[str, Any]:
    """A record as the examples show it."""
    headers = {name: (text or b"").decode() for name, text in record.headers}
    said = {"topic": TOPICS[record.kind], "key": (record.key or b"").decode(), "headers": headers}
    if record.kind is Kind.DEAD_LETTER:
        return {**said, "value_base64": base64.b64encode(record.value).decode()}
    return {**said, "value": json.loads(record.value)}


class _OneLane:
    """The engine as one partition sees it."""

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self.drop = recognizer.drop
        self.step = recognizer.step

    def open(self, segment: Segment, priority: int) -> str:
        return self._recognizer.open(segment, priority, 0)

    def feed(
        self, request_id: str, samples: NDArray[np.float32], keep_samples: int | None, last: bool
    ) -> None:
        self._recognizer.feed(request_id, samples, keep_samples, last)


class WorkerDesk(Desk):
    """A partition of the chunk topic, decoded by the engine that it is given."""

    def __init__(self, log: list[RawMessage], engine: ASREngine) -> None:
        self._model = ModelName(engine.model_info.name, engine.model_info.digest)
        self._engine = engine
        super().__init__(log)

    def _assign(self) -> Partition:
        contents, _ = decode_metadata(self.committed.metadata, TOPIC_ID, 0, self.committed.offset)
        self.position = bisect_left([message.offset for message in self.log], self.committed.offset)
        self.speech = _OneLane(Recognizer(self._engine, lambda: self.clock_s))  # type: ignore[assignment]
        surroundings = Surroundings(
            topic=CHUNKS,
            speech=lambda _number: self.speech,
            records=Publisher(Identity("oasr-worker", self._model), lambda: NOW_MS),
            outbox=self.outbox,
            counters=self.counts,
            now=lambda: self.clock_s,
            now_ms=lambda: NOW_MS,
            defaults=ChunkDefaults(),
            limits=self.limits,
            endpointing=self.endpointing,
            admission=Admission(
                self._engine.model_info.languages, check=self._engine.check_decoding
            ),
        )
        return Partition(Place(TOPIC_ID, 0, self.committed.offset), surroundings, contents)

    def settle(self) -> None:
        while self._engine.has_work:
            self.speech.step()
        super().settle()
