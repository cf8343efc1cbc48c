"""Dead letters under test: refused messages on a topic of plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from worker.dead_letter_read import Letter, read_letter
from worker.dead_letter_topic import Span
from worker.dead_letters import Refusal, build
from worker.errors import ErrorCode
from worker.messages import OutRecord, RawMessage

LETTERS = "oasr.dead-letters"


def on_topic(
    record: OutRecord, offset: int = 0, partition: int = 0, time_ms: int = 9
) -> RawMessage:
    """A record as the dead-letter topic gives it."""
    return RawMessage(LETTERS, partition, offset, time_ms, record.key, record.value, record.headers)


def refused(
    raw: RawMessage, code: ErrorCode = ErrorCode.ENCODING_REQUIRED, max_bytes: int = 950_000
) -> OutRecord:
    """The dead letter of a message."""
    return build(raw, Refusal(code, "the audio has no encoding", "codec"), 5, max_bytes)


def letter_of(raw: RawMessage, **more: int) -> Letter:
    """The same as it is read again."""
    letter = read_letter(on_topic(refused(raw, **more)))
    assert letter is not None
    return letter


class FakeTopic:
    """A dead-letter topic and the topics that its letters come from."""

    def __init__(self, letters: list[RawMessage], originals: Sequence[RawMessage] = ()) -> None:
        self.topic = LETTERS
        places: dict[int, int] = {}
        self.log = []
        for raw in letters:
            offset = places.get(raw.partition, 0)
            places[raw.partition] = offset + 1
            self.log.append(replace(raw, offset=offset))
        self._originals = [*self.log, *originals]
        self.looked_up = 0

    def __enter__(self) -> FakeTopic:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is held."""

    def span(self, since_ms: int | None, after: Mapping[int, int]) -> Span:
        del since_ms  # where to begin is only a matter of speed
        numbers = {raw.partition for raw in self.log}
        ends = {n: sum(raw.partition == n for raw in self.log) for n in numbers}
        return Span({n: after.get(n, -1) + 1 for n in numbers}, ends)

    def records(self, span: Span) -> Iterator[RawMessage]:
        for raw in self.log:
            if span.starts[raw.partition] <= raw.offset < span.ends[raw.partition]:
                yield raw

    def original(self, topic: str, partition: int, offset: int) -> RawMessage | None:
        self.looked_up += 1
        for raw in self._originals:
            if (raw.topic, raw.partition, raw.offset) == (topic, partition, offset):
                return raw
        return None
