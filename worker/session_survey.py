"""Which sessions are open and what pins each partition, as the group's commits tell it.

No worker is asked: commit metadata, or the state record that it names, lists every open session.
It knows keys by their hashes alone; the message at a session's first open offset has the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from worker.metadata import Place, start_counter_of
from worker.one_message import message_at
from worker.session_map import MapError, SessionEntry, SessionMap
from worker.session_map_codec import decode_metadata
from worker.state_reference import decode_reference

TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that has not ended, as of the last commit."""

    key_hash: int
    origin: int
    first_open: int | None  # None: nothing of it is open, it only has not ended
    channels: int
    segments: int  # finished ones
    pending: str | None  # a cut that waits: `<kind>:<reason>`
    key: bytes | None = None
    since_ms: int | None = None  # when the first open message was sent


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    """One partition as of its last commit; `problem` says why its map is not known."""

    partition: int
    committed: int | None
    end: int
    starts: int = 0
    sessions: tuple[OpenSession, ...] = ()  # whoever holds the commit most first
    messages: tuple[int, ...] = ()  # open offsets of no session: dead letters on their way
    problem: str | None = None

    @property
    def pinned_by(self) -> OpenSession | None:
        """The session whose first open message is the commit."""
        first = next(iter(self.sessions), None)
        return first if first is not None and first.first_open == self.committed else None


class Survey:
    """Reads what a group has committed on the chunk topic."""

    def __init__(self, client: dict[str, Any], topic: str, state_topic: str, topic_id: str) -> None:
        """`client` are properties with the group's `group.id`; nothing is joined or committed."""
        self._topic = topic
        self._state_topic = state_topic
        self._topic_id = topic_id
        self._consumer = Consumer(
            {
                **client,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Of the chunk topic; raises KafkaException where there is none."""
        topic = self._consumer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        return sorted(topic.partitions)

    def of(self, numbers: list[int]) -> Iterator[PartitionSurvey]:
        """One partition after another, keys left out."""
        asked = [TopicPartition(self._topic, number) for number in numbers]
        for place in self._consumer.committed(asked, timeout=TIMEOUT_S):
            if place.error is not None:
                raise KafkaException(place.error)
            _, end = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, place.partition), timeout=TIMEOUT_S
            )
            if place.offset < 0:
                yield PartitionSurvey(place.partition, None, end)
            else:
                yield self._surveyed(place.partition, place.offset, place.metadata or "", end)

    def named(self, survey: PartitionSurvey, most: int) -> PartitionSurvey:
        """The same with the keys and ages of its first `most` sessions."""
        sessions = [self._named(survey.partition, session) for session in survey.sessions[:most]]
        return replace(survey, sessions=(*sessions, *survey.sessions[most:]))

    def _surveyed(self, number: int, committed: int, metadata: str, end: int) -> PartitionSurvey:
        place = Place(self._topic_id, number, committed)
        survey = PartitionSurvey(number, committed, end)
        try:
            starts = start_counter_of(metadata, place) if metadata else 0
            contents = self._map_of(metadata, place)
        except MapError as error:
            return replace(survey, problem=error.reason)
        if contents is None:
            return replace(survey, starts=starts)
        sessions = sorted(
            map(_open_session, contents.sessions),
            key=lambda s: (s.first_open is None, s.first_open, s.origin),
        )
        return replace(
            survey, starts=starts, sessions=tuple(sessions), messages=contents.open_offsets
        )

    def _map_of(self, metadata: str, place: Place) -> SessionMap | None:
        named = decode_reference(metadata, place)
        text: str | None = metadata
        if named is not None:
            reference = named[0]
            record = self._read(self._state_topic, reference.partition, reference.offset)
            value = (record.value() if record is not None else None) or b""
            if not reference.names(value):
                raise MapError("its record on the state topic cannot be read")
            text = value.decode("ascii", "replace")
        contents, _ = decode_metadata(text, *place)
        return contents

    def _named(self, number: int, session: OpenSession) -> OpenSession:
        if session.first_open is None:
            return session
        message = self._read(self._topic, number, session.first_open)
        if message is None:
            return session
        _, timestamp_ms = message.timestamp()
        return replace(session, key=session.key or message.key(), since_ms=timestamp_ms or None)

    def _read(self, topic: str, partition: int, offset: int) -> Message | None:
        return message_at(self._consumer, topic, partition, offset)


def _open_session(entry: SessionEntry) -> OpenSession:
    channels = [channel for stream in entry.streams for channel in stream.entries]
    opens = [stream.first_open for stream in entry.streams if stream.first_open is not None]
    pending = next((c.pending for c in channels if c.pending is not None), None)
    return OpenSession(
        key_hash=entry.key_hash,
        origin=entry.origin,
        first_open=min(opens, default=None),
        channels=len(channels),
        segments=sum(channel.segment_index for channel in channels),
        pending=None if pending is None else f"{pending.kind}:{pending.reason}",
        key=entry.key,
    )
