"""Event records: what happened to a session or a file, and its totals at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from worker.alternatives import seconds
from worker.cloudevents import Attributes, Identity, headers
from worker.messages import Kind, OutRecord
from worker.records import Gap, gap_fields

SESSION_SCHEMA: Final = "oasr.session.v1"
FILE_SCHEMA: Final = "oasr.file.v1"
_FILE_TYPE: Final = "oasr.file.completed.v1"


class SessionEvent(StrEnum):
    """What a session event tells."""

    STARTED = "started"
    RESUMED = "resumed"
    GAP = "gap"
    WARNING = "warning"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Cause:
    """The message that an event or dead letter is about; channel None: all of them.

    `id_offset` stands in the id for a message that several events of one kind may be about.
    """

    topic: str
    partition: int
    offset: int
    channel: int | None = None
    id_offset: int | None = None

    def id(self, code: str) -> str:
        """`<topic>:<partition>:<offset>:<channel>:<code>`, with `-` for all channels."""
        offset = self.offset if self.id_offset is None else self.id_offset
        channel = "-" if self.channel is None else self.channel
        return f"{self.topic}:{self.partition}:{offset}:{channel}:{code}"


@dataclass(frozen=True, slots=True)
class Session:
    """The session an event is about, with the format of its audio where that is known."""

    session_id: str
    origin: str
    sample_rate: int | None = None
    channels: int | None = None
    roles: tuple[str, ...] = ()
    position_ms: int = 0
    from_sample: int | None = None  # of a session that goes on under a new origin
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class ChannelTotals:
    """What became of a channel's samples: received = decoded + silence + dropped."""

    channel: int
    role: str | None
    finals: int
    received: int
    decoded: int  # in segments
    silence: int  # in spans outside segments
    dropped: tuple[tuple[str, int], ...] = ()  # (reason, samples)
    filled: int = 0  # samples of the clock for which no audio came, in none of the others


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended."""

    reason: str
    totals: tuple[ChannelTotals, ...]
    warnings: tuple[str, ...] = ()
    second_finals: int | None = None  # of the second pass; None: there was none


@dataclass(frozen=True, slots=True)
class CompletedFile:
    """What became of a file job; `duration_samples` counts one channel."""

    file_id: str
    origin: str
    sample_rate: int
    duration_samples: int
    totals: tuple[ChannelTotals, ...]
    warnings: tuple[str, ...] = ()
    traceparent: str | None = None
    model: str | None = None  # that decoded it, as the settings name it


def started(identity: Identity, session: Session, cause: Cause, now_ms: int) -> OutRecord:
    """The session's clock began with `cause`."""
    return _session_event(identity, SessionEvent.STARTED, session, cause, {}, now_ms)


def resumed(
    identity: Identity, session: Session, cause: Cause, reason: str, now_ms: int
) -> OutRecord:
    """The session goes on under a new origin, for `reason`."""
    fields = {"reason": reason}
    return _session_event(identity, SessionEvent.RESUMED, session, cause, fields, now_ms)


@dataclass(frozen=True, slots=True)
class MissingAudio:
    """Audio that never came: where on the clock, and the numbers (first, last) that are missing."""

    place: Gap
    filled_samples: int = 0  # of silence in its place
    sequences: tuple[int, int] | None = None  # None: no message is missing


def gap(
    identity: Identity, session: Session, cause: Cause, missing: MissingAudio, now_ms: int
) -> OutRecord:
    """Audio is missing in front of that of `cause`; needs the session's sample rate."""
    if session.sample_rate is None:
        raise ValueError("a gap needs the session's sample rate")
    fields: dict[str, Any] = {
        "gap": gap_fields(missing.place, session.sample_rate, session.position_ms),
        "filled_samples": missing.filled_samples,
    }
    if missing.sequences is not None:
        fields["first_sequence"], fields["last_sequence"] = missing.sequences
    return _session_event(identity, SessionEvent.GAP, session, cause, fields, now_ms)


def warning(
    identity: Identity, session: Session, cause: Cause, code: str, now_ms: int
) -> OutRecord:
    """Something about `cause` that its producer should know, as a code."""
    fields = {"code": code}
    return _session_event(identity, SessionEvent.WARNING, session, cause, fields, now_ms)


def ended(
    identity: Identity,
    session: Session,
    cause: Cause,
    outcome: Outcome,
    now_ms: int,
) -> OutRecord:
    """The session is over, with the totals of its channels since its origin."""
    totals = outcome.totals
    second = {} if outcome.second_finals is None else {"second_finals": outcome.second_finals}
    fields = {
        "reason": outcome.reason,
        "finals": sum(channel.finals for channel in totals),
        "totals": [_totals(channel, session.sample_rate) for channel in totals],
        "warnings": list(outcome.warnings),
        **second,
    }
    return _session_event(identity, SessionEvent.ENDED, session, cause, fields, now_ms)


def file_completed(identity: Identity, file: CompletedFile, cause: Cause, now_ms: int) -> OutRecord:
    """All finals of a file job are published."""
    model = identity.model_of(file.model)
    body = {
        "schema": FILE_SCHEMA,
        "event": "completed",
        "file_id": file.file_id,
        "origin": file.origin,
        "sample_rate": file.sample_rate,
        "duration": seconds(file.duration_samples, file.sample_rate),
        "duration_samples": file.duration_samples,
        "channels": len(file.totals),
        "finals": sum(channel.finals for channel in file.totals),
        "totals": [_totals(channel, file.sample_rate) for channel in file.totals],
        "warnings": list(file.warnings),
        "model": {"name": model.name, "digest": model.digest},
        "source": _source(cause),
    }
    attributes = Attributes(
        id=cause.id("completed"),
        type=_FILE_TYPE,
        subject=file.file_id,
        now_ms=now_ms,
        traceparent=file.traceparent,
    )
    return _event_record(identity, file.file_id, body, attributes)


def _session_event(
    identity: Identity,
    event: SessionEvent,
    session: Session,
    cause: Cause,
    fields: Mapping[str, Any],
    now_ms: int,
) -> OutRecord:
    body = {
        "schema": SESSION_SCHEMA,
        "event": event.value,
        "session_id": session.session_id,
        "origin": session.origin,
        "channel": cause.channel,
        "channels": session.channels,
        "roles": list(session.roles),
        "sample_rate": session.sample_rate,
        "from_sample": session.from_sample,
        **fields,
        "source": _source(cause),
    }
    attributes = Attributes(
        id=cause.id(str(fields.get("code", event.value))),
        type=f"oasr.session.{event.value}.v1",
        subject=session.session_id,
        now_ms=now_ms,
        traceparent=session.traceparent,
    )
    return _event_record(identity, session.session_id, body, attributes)


def _event_record(
    identity: Identity, key: str, body: Mapping[str, Any], attributes: Attributes
) -> OutRecord:
    return OutRecord(
        kind=Kind.EVENT,
        key=key.encode(),
        value=orjson.dumps(body),
        headers=headers(identity, attributes),
    )


def _source(cause: Cause) -> dict[str, Any]:
    return {"topic": cause.topic, "partition": cause.partition, "offset": cause.offset}


def _totals(totals: ChannelTotals, sample_rate: int | None) -> dict[str, Any]:
    filled = {"filled": _amount(totals.filled, sample_rate)} if totals.filled else {}
    return {
        "channel": totals.channel,
        "role": totals.role,
        "finals": totals.finals,
        "received": _amount(totals.received, sample_rate),
        "decoded": _amount(totals.decoded, sample_rate),
        "silence": _amount(totals.silence, sample_rate),
        "dropped": {
            reason: _amount(samples, sample_rate) for reason, samples in totals.dropped if samples
        },
        **filled,
    }


def _amount(samples: int, sample_rate: int | None) -> dict[str, Any]:
    """Samples, and seconds where the rate is known."""
    if sample_rate is None:
        return {"samples": samples}
    return {"samples": samples, "seconds": seconds(samples, sample_rate)}
