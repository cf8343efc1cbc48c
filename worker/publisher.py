"""Builds the records of live sessions from what sessions and segments know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oasr.engine.request import RequestOutput
from worker import dead_letters, events, records
from worker.alternatives import Place, alternatives_of
from worker.cloudevents import Identity as Origin
from worker.dead_letters import Refusal
from worker.engine_process import CRASHED, MOST_DEATHS
from worker.errors import ErrorCode
from worker.events import Cause, MissingAudio, Outcome
from worker.identity import Identity
from worker.loss import Loss, event
from worker.messages import OutRecord
from worker.segments import Segment
from worker.streams import MediaFormat, MessageContext

NEW_ORIGIN = "new_origin"
STABILITY_DIGITS = 3


class Publisher:
    """One worker's records; `now_ms` is wall-clock time since the epoch."""

    def __init__(self, origin: Origin, now_ms: Callable[[], int]) -> None:
        self._origin = origin
        self._now_ms = now_ms

    def partial(self, identity: Identity, segment: Segment, revision: int) -> OutRecord:
        """What a segment says so far; `revision` counts its decoded samples at the media rate."""
        described = _described(identity, segment, segment.info.start_sample + revision)
        hypothesis = _hypothesis(segment, described, revision)
        if segment.output.stability:
            stability = round(segment.output.stability[-1], STABILITY_DIGITS)
            hypothesis = replace(hypothesis, stability=stability)
        return records.transcript(self._origin, described, hypothesis, {}, self._now_ms())

    def final(self, identity: Identity, segment: Segment) -> OutRecord:
        """What a segment says; latency runs from the message that completed the endpoint."""
        info = segment.info
        if info.end_sample is None or info.end_reason is None:
            raise ValueError("the segment has no end")
        described = _described(identity, segment, info.end_sample)
        revision = info.end_sample - info.start_sample
        hypothesis = _hypothesis(segment, described, revision, info.end_reason.value)
        now_ms = self._now_ms()
        latency = {}
        if info.decided_timestamp_ms:
            latency["final"] = max(0, now_ms - info.decided_timestamp_ms)
        return records.transcript(self._origin, described, hypothesis, latency, now_ms)

    def heard_again(
        self, identity: Identity, segment: Segment, output: RequestOutput, name: str, model: str
    ) -> OutRecord:
        """What the second pass `name`, by the `model`, hears in a segment."""
        info = segment.info
        if info.end_sample is None or info.end_reason is None:
            raise ValueError("the segment has no end")
        described = replace(
            _described(identity, segment, info.end_sample),
            model=model,
            warnings=(*info.context.options.warnings, *segment.warnings, *_failure_of(output)),
        )
        place = Place(described.start_sample, described.end_sample, described.sample_rate)
        hypothesis = records.Hypothesis(
            alternatives_of(output, place),
            info.end_sample - info.start_sample,
            info.end_reason.value,
            pass_name=name,
        )
        return records.transcript(self._origin, described, hypothesis, {}, self._now_ms())

    def crashed(self, identity: Identity, segment: Segment) -> OutRecord:
        """The dead letter of a segment that kills whoever decodes it."""
        info = segment.info
        if info.end_sample is None:
            raise ValueError("the segment has no end")
        refusal = Refusal(
            ErrorCode.CRASHED_WORKER,
            f"decoding samples {info.start_sample} to {info.end_sample} of channel {info.channel}"
            f" ended a process {MOST_DEATHS} times",
            "engine",
            attempts=MOST_DEATHS,
        )
        described = _described(identity, segment, info.end_sample)
        return dead_letters.of_segment(
            described, refusal, info.context.timestamp_ms, self._now_ms()
        )

    def lost(self, loss: Loss) -> OutRecord:
        """Messages of a partition are lost."""
        return event(self._origin, loss, self._now_ms())

    def opened(self, identity: Identity, context: MessageContext, media: MediaFormat) -> OutRecord:
        """The started event, or the resumed event of a session that goes on."""
        session = _session(identity, context, media)
        cause = Cause(identity.topic, identity.partition, context.offset)
        if identity.from_sample is None:
            return events.started(self._origin, session, cause, self._now_ms())
        return events.resumed(self._origin, session, cause, NEW_ORIGIN, self._now_ms())

    def gap(
        self,
        identity: Identity,
        context: MessageContext,
        media: MediaFormat,
        channel: int,
        missing: MissingAudio,
    ) -> OutRecord:
        """Audio is missing in front of that of a message."""
        session = _session(identity, context, media)
        cause = Cause(identity.topic, identity.partition, context.offset, channel)
        return events.gap(self._origin, session, cause, missing, self._now_ms())

    def ended(
        self, identity: Identity, context: MessageContext, media: MediaFormat, outcome: Outcome
    ) -> OutRecord:
        """The session is over; `context` is that of the message which ended it.

        One message, or one moment without any, may end several sessions: the id has the origin.
        """
        session = _session(identity, context, media)
        cause = Cause(identity.topic, identity.partition, context.offset, id_offset=identity.origin)
        return events.ended(self._origin, session, cause, outcome, self._now_ms())


def _hypothesis(
    segment: Segment, described: records.Segment, revision: int, end_reason: str | None = None
) -> records.Hypothesis:
    place = Place(described.start_sample, described.end_sample, described.sample_rate)
    return records.Hypothesis(alternatives_of(segment.output, place), revision, end_reason)


def _failure_of(output: RequestOutput) -> tuple[str, ...]:
    if output.finish_reason == "stop":
        return ()
    crashed = output.error_stage == CRASHED
    return ((ErrorCode.CRASHED_WORKER if crashed else ErrorCode.ENGINE_FAILED).value,)


def _described(identity: Identity, segment: Segment, end_sample: int) -> records.Segment:
    info = segment.info
    context = info.context
    warnings = (*context.options.warnings, *segment.warnings)
    if segment.failed:
        code = ErrorCode.CRASHED_WORKER if segment.crashed else ErrorCode.ENGINE_FAILED
        warnings = (*warnings, code.value)
    return records.Segment(
        session_id=identity.session_id,
        origin=identity.origin_name,
        channel=info.channel,
        channels=context.channels,
        role=role_of(context.roles, info.channel),
        segment_index=info.index,
        start_sample=info.start_sample,
        end_sample=end_sample,
        sample_rate=info.media_rate,
        source=records.Source(
            identity.topic, identity.partition, info.first_offset, info.last_offset
        ),
        position_ms=identity.position_ms,
        gaps=info.gaps,
        warnings=warnings,
        traceparent=context.traceparent,
        model=context.options.model,
    )


def role_of(roles: tuple[str, ...], channel: int) -> str | None:
    """The role of a channel, if its producer names one."""
    return roles[channel] if channel < len(roles) else None


def _session(identity: Identity, context: MessageContext, media: MediaFormat) -> events.Session:
    return events.Session(
        session_id=identity.session_id,
        origin=identity.origin_name,
        sample_rate=media.sample_rate,
        channels=context.channels,
        roles=context.roles,
        position_ms=identity.position_ms,
        from_sample=identity.from_sample,
        traceparent=context.traceparent,
    )
