"""One session and origin of a partition: its streams, its channels, its end.

Messages come in order of their offsets. A message stays open until every span that uses it is
finished and every event that it caused is acknowledged; messages are released in order, so a
stream's first open message is where a replay has to begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oasr.audio.segmenter import EndReason
from worker.channels import Channel
from worker.codec import Chunk, Event
from worker.events import MissingMessages
from worker.identity import EDGES, Identity, SessionState
from worker.messages import OutRecord, RawMessage
from worker.ports import Ports
from worker.records import Gap
from worker.session_listener import SessionListener
from worker.session_map import PendingCut, SessionEntry
from worker.session_snapshot import outcome_of
from worker.session_streams import SessionStreams
from worker.streams import MessageContext, Received, Stream, forces_cut


class Session:
    """Takes the messages of one call in order and publishes what they say."""

    def __init__(self, identity: Identity, ports: Ports) -> None:
        self.identity = identity
        self.state = SessionState.OPEN
        self.last_activity = ports.now()
        self.end_reason = ""
        self.aborted_samples: dict[int, int] = {}
        self._ports = ports
        self._records = ports.records
        self.last_context = MessageContext.nothing(identity.origin)
        self.streams = SessionStreams(SessionListener(self, ports))
        self._on_closed: list[Received] = []  # messages that wait for this session's end

    def move_to(self, state: SessionState) -> None:
        """The only writer of `state`; raises RuntimeError on an edge that is not in the table."""
        if state not in EDGES[self.state]:
            raise RuntimeError(f"session: {self.state} -> {state}")
        self.state = state

    @classmethod
    def restore(
        cls, identity: Identity, entry: SessionEntry, highest: int, ports: Ports
    ) -> Session:
        """Rebuild a session as its former owner left it, ready for the replay."""
        session = cls(identity, ports)
        session.streams.restore(entry, highest)
        return session

    @property
    def channels(self) -> dict[int, Channel]:
        """All channels by index."""
        return self.streams.channels

    @property
    def elapsed_ms(self) -> int:
        """Media time up to which audio came."""
        return self.identity.position_ms + self.streams.elapsed_ms

    # -- messages -----------------------------------------------------------------------------

    def drop_duplicate(self, raw: RawMessage, chunk: Chunk) -> None:
        """Count a repeated or late message; it is done at once."""
        stream = self.streams.of(chunk)
        if stream is not None:
            samples = stream.drop(len(chunk.audio or b""))
            self._ports.counters.audio("dropped", samples / stream.media.sample_rate)
        self._ports.release(raw.offset, "duplicate")

    def accept(self, raw: RawMessage, chunk: Chunk) -> Received | None:
        """Take a message that belongs here; returns it if it stays open for a while."""
        stream = self.streams.of(chunk) or self.streams.begin(chunk, self.identity.position_ms)
        if chunk.event is not Event.KEEPALIVE:
            self.last_activity = self._ports.now()
        gap = stream.gap_before(chunk.sequence)
        opens = raw.offset == self.identity.origin
        if not chunk.audio and not forces_cut(chunk) and gap is None and not opens:
            stream.count_message(chunk.sequence)
            self._ports.release(raw.offset)
            return None
        received = stream.begin(MessageContext.of(raw, chunk), chunk.sequence)
        if self.state is SessionState.OPEN:
            self.last_context = received.context
        if opens:
            self._event(
                received, self._records.opened(self.identity, received.context, stream.media)
            )
        if gap is not None:
            self._report_gap(received, stream, gap)
        if chunk.audio:
            self.streams.feed(stream, received, chunk.audio)
        self._control(received, chunk)
        self.pump()
        return received

    def supersede(self, reason: str, by: Received | None) -> None:
        """A newer origin of the same key has begun: finish; `by` stays open until that is done."""
        if self.state in (SessionState.CLOSED, SessionState.DROPPED):
            return
        if by is not None:
            by.open_records += 1
            self._on_closed.append(by)
        if self.state is SessionState.OPEN:
            if by is not None:
                self.last_context = by.context
            for channel in self.channels.values():
                channel.cut(EndReason.FORMAT_CHANGE)
            self._begin_end(reason)
            self.pump()

    def pump(self) -> None:
        """Hear everything queued, settle what is finished, release messages."""
        for channel in self.channels.values():
            channel.pump()
        self.span_finished()

    def drop(self) -> None:
        """Hand-over: leave the engine, publish nothing more."""
        for channel in self.channels.values():
            channel.drop()
        if self.state is not SessionState.CLOSED:
            self.move_to(SessionState.DROPPED)

    # -- cuts that no audio decides -----------------------------------------------------------

    def tick(self, idle_s: float, last_offset: int) -> bool:
        """Propose the cuts that time or failures ask for; True if a commit has to carry one."""
        if self.state is not SessionState.OPEN:
            return False
        limits = self._ports.limits
        proposed = False
        for channel in self.channels.values():
            segment = channel.open_segment
            if segment is not None and segment.failed:
                proposed |= channel.propose("cut", EndReason.ERROR, last_offset)
            elif idle_s >= limits.session_ttl_s:
                proposed |= channel.propose("end", EndReason.TTL, last_offset)
            elif idle_s >= limits.idle_finalize_s and channel.has_open_audio:
                proposed |= channel.propose("cut", EndReason.IDLE, last_offset)
        return proposed

    def pending_end_applied(self, pending: PendingCut) -> None:
        """A channel has made its last cut; the last channel ends the session."""
        if self.state is SessionState.OPEN and all(
            channel.is_ended_by_pending for channel in self.channels.values()
        ):
            # The id of the ended event must not depend on who publishes it.
            self.last_context = replace(self.last_context, offset=pending.last_offset)
            self._begin_end(pending.reason)
            self.span_finished()

    # -- settling and ending --------------------------------------------------------------------

    def span_finished(self) -> None:
        """Something settled: release messages; publish the ended event after the last span."""
        for stream in self.streams.all:
            while stream.messages and self._is_done(stream, stream.messages[0]):
                self._ports.release(stream.messages.popleft().context.offset)
        if self.state is SessionState.ENDING and all(
            channel.is_settled for channel in self.channels.values()
        ):
            self.move_to(SessionState.ENDED)
            media = self.streams.media
            record = self._records.ended(self.identity, self.last_context, media, outcome_of(self))
            self._ports.publish(record, self._close)

    def published_offsets(self) -> Iterator[int]:
        """Open messages whose events are on the topic already."""
        for stream in self.streams.all:
            for received in stream.messages:
                if received.had_events and not received.open_records:
                    yield received.context.offset

    # -- inside -------------------------------------------------------------------------------

    def _control(self, received: Received, chunk: Chunk) -> None:
        if chunk.event is Event.FLUSH:
            received.cuts = {i: c.cut(EndReason.FLUSH) for i, c in self.channels.items()}
        elif chunk.event is Event.END:
            self._end(received, chunk)
        elif chunk.event is Event.ABORT:
            received.ends_session = True
            self.aborted_samples = {i: c.abort() for i, c in self.channels.items()}
            self._begin_end("abort")

    def _end(self, received: Received, chunk: Chunk) -> None:
        """An `end` with a channel ends that one, and the session with the last of them."""
        received.ends_session = True
        for stream in self.streams.all:
            if chunk.channel in (None, stream.first_channel) and not stream.ended:
                stream.ended = True
                for index in stream.channels:
                    self.channels[index].cut(EndReason.END)
        if all(stream.ended for stream in self.streams.all):
            self._begin_end("end")

    def _begin_end(self, reason: str) -> None:
        self.end_reason = reason
        self.move_to(SessionState.ENDING)

    def _report_gap(self, received: Received, stream: Stream, gap: tuple[int, int]) -> None:
        place = Gap(stream.next_sample, stream.next_sample)
        record = self._records.gap(
            self.identity,
            received.context,
            stream.media,
            stream.first_channel,
            MissingMessages(gap[0], gap[1], place),
        )
        self._event(received, record)

    def _event(self, received: Received, record: OutRecord) -> None:
        """Publish an event that a message caused, unless the former owner did."""
        received.had_events = True
        if self._ports.is_published(received.context.offset):
            return
        received.open_records += 1
        self._ports.publish(record, lambda: self._record_acknowledged(received))

    def _record_acknowledged(self, received: Received) -> None:
        received.open_records -= 1
        self.span_finished()

    def _is_done(self, stream: Stream, received: Received) -> bool:
        if received.open_records or received.ends_session:
            return False
        channels = self.channels
        return all(
            channels[i].resume_sample >= received.hold_until for i in stream.channels
        ) and all(channels[i].resume_sample >= sample for i, sample in received.cuts.items())

    def _close(self) -> None:
        if self.state is not SessionState.ENDED:
            return
        self.move_to(SessionState.CLOSED)
        for stream in self.streams.all:
            for received in stream.messages:
                self._ports.release(received.context.offset)
            stream.messages.clear()
        for received in self._on_closed:
            received.open_records -= 1
        self._ports.closed(self)
