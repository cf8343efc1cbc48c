"""What a session's channels and segments say and ask, answered for the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oasr.audio.segmenter import SegmenterConfig
from worker import stated_rate
from worker.errors import ErrorCode
from worker.ports import Ports
from worker.segments import Segment, SegmentState
from worker.session_map import PendingCut
from worker.streams import MessageContext
from worker.tracing import Work, consumed

if TYPE_CHECKING:
    from worker.sessions import Session


class SessionListener:
    """Publishes partials and finals, and settles a channel when a final is acknowledged."""

    def __init__(self, session: Session, ports: Ports) -> None:
        self.speech = ports.speech
        self._session = session
        self._ports = ports

    def partial(self, segment: Segment, revision: int) -> None:
        """A segment's text has changed."""
        if segment.text and segment.info.context.options.partials:
            record = self._ports.records.partial(self._session.identity, segment, revision)
            self._ports.publish(record, None)

    def decoded(self, segment: Segment) -> None:
        """A segment has its last text: tell it, and those behind it that waited for it.

        So the finals of a channel come in order, and what a map shows as finished is all of them
        up to one.
        """
        for following in self._session.channels[segment.info.channel].closed_segments:
            if following.state is SegmentState.CLOSED:
                break
            if following.state is SegmentState.DECODED and not following.told:
                following.told = True
                self._tell(following)

    def _tell(self, segment: Segment) -> None:
        """Publish a segment's last text; without any there is no final, unless it is doubtful."""
        emit_empty = segment.info.context.options.emit_empty
        if emit_empty is None:
            emit_empty = self._ports.limits.emit_empty
        segment.rate_is_suspect = self._states_another_rate(segment)
        reason = segment.info.end_reason
        self._ports.counters.segment("" if reason is None else reason.value, bool(segment.text))
        if not (segment.text or emit_empty or segment.failed or segment.warnings):
            self._done(segment)
            return
        segment.published = True
        if segment.crashed:
            self._ports.counters.dead_letter(ErrorCode.CRASHED_WORKER)
            letter = self._ports.records.crashed(self._session.identity, segment)
            self._ports.publish(letter, lambda: self._publish(segment))
        else:
            self._publish(segment)

    def _states_another_rate(self, segment: Segment) -> bool:
        """All messages of a segment are open until its final is acknowledged."""
        info = segment.info
        end_sample = info.start_sample if info.end_sample is None else info.end_sample
        return any(
            stated_rate.is_suspect(stream.messages, info.start_sample, end_sample, stream.media)
            for stream in self._session.streams.all
            if info.channel in stream.channels
        )

    def failed(self, segment: Segment) -> None:
        """The engine gave up an open segment; the next tick proposes the cut that ends it."""

    def opened(self, segment: Segment) -> None:
        """A segment begins; its audio may be wanted a second time."""
        self._session.second_pass.opened(segment)

    def heard(self, segment: Segment, samples: NDArray[np.int16]) -> None:
        """A segment has got audio."""
        self._session.second_pass.heard(segment, samples)

    def context_at(self, channel: int, sample: int) -> MessageContext:
        """The context of the message that holds a sample of a channel."""
        for stream in self._session.streams.all:
            if channel in stream.channels:
                context = stream.context_at(sample)
                if context is not None:
                    return context
        return MessageContext.nothing(self._session.identity.origin)

    def segmenter_config(self, context: MessageContext) -> SegmenterConfig:
        """The endpointing of a span."""
        return self._ports.segmenter_config(context.options)

    def count_audio(self, decoded_s: float, silence_s: float) -> None:
        """A span of a channel is finished."""
        self._ports.counters.audio("decoded", decoded_s)
        self._ports.counters.audio("silence", silence_s)

    def span_finished(self) -> None:
        """A channel's resume sample has moved."""
        self._session.span_finished()

    def pending_applied(self, pending: PendingCut) -> None:
        """A channel has cut where a commit said."""
        if pending.kind == "end":
            self._session.pending_end_applied(pending)

    def _publish(self, segment: Segment) -> None:
        record = self._ports.records.final(self._session.identity, segment)
        self._ports.publish(record, lambda: self._acknowledged(segment))

    def _acknowledged(self, segment: Segment) -> None:
        decided_ms = segment.info.decided_timestamp_ms
        if decided_ms:
            latency_s = max(0, self._ports.now_ms() - decided_ms) / 1000
            self._ports.counters.final_acknowledged(latency_s)
        self._ports.counters.worked(self._work(segment))
        self._done(segment)

    def _work(self, segment: Segment) -> Work:
        info, identity = segment.info, self._session.identity
        now_ms = self._ports.now_ms()
        end_sample = info.start_sample if info.end_sample is None else info.end_sample
        return Work(
            name="segment",
            traceparent=info.context.traceparent,
            start_ms=info.context.timestamp_ms or now_ms,
            end_ms=now_ms,
            attributes={
                **consumed(identity.topic, identity.partition, info.first_offset),
                "oasr.session_id": identity.session_id,
                "oasr.channel": info.channel,
                "oasr.segment_index": info.index,
                "oasr.audio_ms": (end_sample - info.start_sample) * 1000 // info.media_rate,
                "oasr.end_reason": "" if info.end_reason is None else info.end_reason.value,
            },
        )

    def _done(self, segment: Segment) -> None:
        if segment.state is SegmentState.DECODED:
            segment.move_to(SegmentState.DONE)
            self._session.channels[segment.info.channel].settle()
