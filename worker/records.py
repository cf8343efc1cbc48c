"""Transcript records: partials and finals of a segment, as JSON with CloudEvents headers.

Ids follow from the audio's place alone, so the same audio replayed gives the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from worker.alternatives import Alternative, alternative_fields, seconds
from worker.cloudevents import Attributes, Identity, headers
from worker.messages import Kind, OutRecord

SCHEMA: Final = "oasr.transcript.v1"
_FINAL_TYPE: Final = "oasr.transcript.final.v1"
_PARTIAL_TYPE: Final = "oasr.transcript.partial.v1"
_SPEECH_FINAL: Final = frozenset(("silence", "flush", "end"))


@dataclass(frozen=True, slots=True)
class Source:
    """The messages that a record was made from."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of the media clock whose audio never came."""

    start_sample: int
    end_sample: int
    reason: str = "missing"


@dataclass(frozen=True, slots=True)
class Segment:
    """One utterance of one channel; samples are on the channel's media clock.

    `end_sample` is the cut of a final, and the end of what was decoded of a partial.
    `position_ms` is the media time of sample 0.
    """

    session_id: str
    origin: str  # "<partition>-<offset>"
    channel: int
    channels: int
    role: str | None
    segment_index: int
    start_sample: int
    end_sample: int
    sample_rate: int
    source: Source
    position_ms: int = 0
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    traceparent: str | None = None
    model: str | None = None  # that decoded it, as the settings name it

    @property
    def segment_id(self) -> str:
        """The id that all records of the segment share."""
        return segment_id(self.session_id, self.origin, self.channel, self.start_sample)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What was heard, the best reading first: `revision` counts the segment's decoded samples.

    `end_reason` is None for a partial.
    """

    alternatives: tuple[Alternative, ...]
    revision: int
    end_reason: str | None = None
    stability: float | None = None  # of a partial: the probability that its text stays
    pass_name: str | None = None  # of a second pass

    @property
    def is_final(self) -> bool:
        """Whether the text will never change again."""
        return self.end_reason is not None


def segment_id(session_id: str, origin: str, channel: int, start_sample: int) -> str:
    """`<session>:<origin>:<channel>:<start sample>`."""
    return f"{session_id}:{origin}:{channel}:{start_sample}"


def record_id(segment: Segment, hypothesis: Hypothesis) -> str:
    """`<segment id>:final`, of a second pass `…:final:<pass>`, or `<segment id>:<revision>`."""
    state = "final" if hypothesis.is_final else str(hypothesis.revision)
    if hypothesis.pass_name is not None:
        state = f"{state}:{hypothesis.pass_name}"
    return f"{segment.segment_id}:{state}"


def transcript(
    identity: Identity,
    segment: Segment,
    hypothesis: Hypothesis,
    latency_ms: Mapping[str, int],
    now_ms: int,
) -> OutRecord:
    """The record of a partial or final; `latency_ms` names durations, as `{"queue": 4}`."""
    body = _body(segment, hypothesis)
    model = identity.model_of(segment.model)
    body["model"] = {"name": model.name, "digest": model.digest}
    body["source"] = {
        "topic": segment.source.topic,
        "partition": segment.source.partition,
        "first_offset": segment.source.first_offset,
        "last_offset": segment.source.last_offset,
    }
    body["latency"] = {f"{name}_ms": value for name, value in latency_ms.items()}
    attributes = Attributes(
        id=record_id(segment, hypothesis),
        type=_FINAL_TYPE if hypothesis.is_final else _PARTIAL_TYPE,
        subject=segment.segment_id,
        now_ms=now_ms,
        traceparent=segment.traceparent,
    )
    return OutRecord(
        kind=Kind.FINAL if hypothesis.is_final else Kind.PARTIAL,
        key=segment.session_id.encode(),
        value=orjson.dumps(body),
        headers=headers(identity, attributes),
    )


def _body(segment: Segment, hypothesis: Hypothesis) -> dict[str, Any]:
    """The fields that the equality promise covers: the same audio gives the same ones."""
    rate, position_ms = segment.sample_rate, segment.position_ms
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "session_id": segment.session_id,
        "segment_id": segment.segment_id,
        "segment_index": segment.segment_index,
        "revision": hypothesis.revision,
        "is_final": hypothesis.is_final,
        "speech_final": hypothesis.end_reason in _SPEECH_FINAL,
        "end_reason": hypothesis.end_reason,
        "channel": segment.channel,
        "channels": segment.channels,
        "role": segment.role,
        "start": seconds(segment.start_sample, rate, position_ms),
        "end": seconds(segment.end_sample, rate, position_ms),
        "start_sample": segment.start_sample,
        "end_sample": segment.end_sample,
        "sample_rate": rate,
        "alternatives": [
            alternative_fields(alternative, rate, position_ms)
            for alternative in hypothesis.alternatives
        ],
        "gaps": [gap_fields(gap, rate, position_ms) for gap in segment.gaps],
        "warnings": list(segment.warnings),
    }
    if hypothesis.stability is not None:
        fields["stability"] = hypothesis.stability
    if hypothesis.pass_name is not None:
        fields["pass"] = hypothesis.pass_name
    return fields


def gap_fields(gap: Gap, sample_rate: int, position_ms: int) -> dict[str, Any]:
    """A gap as records show it."""
    return {
        "start": seconds(gap.start_sample, sample_rate, position_ms),
        "end": seconds(gap.end_sample, sample_rate, position_ms),
        "start_sample": gap.start_sample,
        "end_sample": gap.end_sample,
        "reason": gap.reason,
    }
