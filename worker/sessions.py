"""One session and origin of a partition: its streams, its channels, its end.

Messages come in order of their offsets. A message stays open until every span that uses it is
finished and every event that it caused is acknowledged; messages are released in order, so a
stream's first open message is where a replay has to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from oasr.audio.segmenter import EndReason
from worker.channels import Channel
from worker.codec import Chunk, Event
from worker.identity import EDGES, Identity, SessionState
from worker.intake import Intake
from worker.messages import RawMessage
from worker.ports import Ports
from worker.reorder import moment_at
from worker.second_pass import SecondPass
from worker.session_listener import SessionListener
from worker.session_map import CutKind, PendingCut, SessionEntry
from worker.session_snapshot import outcome_of
from worker.session_streams import SessionStreams
from worker.spans import PendingState
from worker.streams import MessageContext, Received, Stream


class Session:
    """Takes the messages of one call in order and publishes what they say."""

    def __init__(self, identity: Identity, ports: Ports) -> None:
        self.identity = identity
        self.state = SessionState.OPEN
        self.last_activity = self.last_sign = ports.now()  # a keep-alive is a sign alone
        self.end_reason = ""
        self._ports = ports
        self._records = ports.records
        self.last_context = MessageContext.nothing(identity.origin)
        self.streams = SessionStreams(SessionListener(self, ports), ports.limits.reorder)
        self.intake = Intake(self, ports)
        self.second_pass = SecondPass(self, ports)
        self._on_closed: list[Callable[[], None]] = []

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
        session.intake.restore(entry.closed_behind)
        finished = any(c.segment_index for stream in entry.streams for c in stream.entries)
        session.second_pass.restore(entry.second_pass, not finished)
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
        self.intake.drop_duplicate(raw, chunk)

    def accept(self, raw: RawMessage, chunk: Chunk) -> Received | None:
        """Take a message that belongs here; returns it if it is taken now and stays open."""
        self.last_sign = self._ports.now()
        if chunk.event is not Event.KEEPALIVE:
            self.last_activity = self.last_sign
        return self.intake.accept(raw, chunk)

    def supersede(self, newer: Session, by: Received) -> None:
        """A newer origin of the same key has begun with `by`, which stays open until this ends."""
        if self.state in (SessionState.CLOSED, SessionState.DROPPED):
            return
        by.awaits_older += 1
        self._on_closed.append(lambda: newer.older_ended(by))
        if self.state is SessionState.OPEN:
            self.intake.close(moment_at(by.context.offset))
            self.last_context = by.context
            for channel in self.channels.values():
                channel.cut(EndReason.FORMAT_CHANGE)
            self.begin_end(EndReason.FORMAT_CHANGE.value)
            self.pump()

    def pump(self) -> None:
        """Hear everything queued, settle what is finished, release messages."""
        for channel in self.streams.channels.values():
            channel.pump()
        self.span_finished()

    def drop(self) -> None:
        """Hand-over: leave the engine, publish nothing more."""
        for channel in self.channels.values():
            channel.drop()
        self.second_pass.drop()
        if self.state is not SessionState.CLOSED:
            self.move_to(SessionState.DROPPED)

    # -- cuts that no audio decides -----------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether an end, or a closure, waits for its commit: what comes now lies behind it."""
        closure = self.intake.closure
        if closure is not None and closure.state is PendingState.PROPOSED:
            return True
        for channel in self.streams.channels.values():  # looked at for every message
            if channel.pending is not None and channel.is_ending:
                return True
        return False

    def restart_clocks(self) -> None:
        """Nobody could have been heard so far: silence counts from now on."""
        self.last_activity = self.last_sign = self._ports.now()

    def tick(self, known_until: float, last_offset: int) -> bool:
        """Propose the cuts that time or failures ask for; True if a commit has to carry one.

        All messages that were there at the time `known_until` have been received.
        """
        if self.state is not SessionState.OPEN:
            return False
        if self.intake.catches_up:
            self.intake.catch_up(last_offset + 1)
        limits = self._ports.limits
        free = [channel for channel in self.channels.values() if channel.may_propose]
        failed = [c for c in free if c.open_segment is not None and c.open_segment.failed]
        if failed:
            return _propose(failed, "cut", EndReason.ERROR, last_offset)
        if known_until - self.last_sign >= limits.session_ttl_s:
            return self.propose_end(EndReason.TTL, last_offset)
        if known_until - self.last_activity >= limits.idle_finalize_s:
            if self.intake.waits:
                return self.intake.propose_closure(last_offset)
            heard = [channel for channel in free if channel.has_open_audio]
            return _propose(heard, "cut", EndReason.IDLE, last_offset)
        return False

    def proposed(self) -> Iterator[Callable[[], None]]:
        """What waits for a commit, each with what to call once that is acknowledged."""
        closure = self.intake.closure
        if closure is not None:
            yield partial(self.intake.closure_committed, closure)
        for channel in self.channels.values():
            if channel.pending is not None:
                yield partial(channel.pending_committed, channel.pending)

    def propose_end(self, reason: EndReason, last_offset: int) -> bool:
        """Propose the end of all channels together: what comes after is another origin's.

        What waits for a missing message is taken first.
        """
        if self.intake.waits:
            return self.intake.propose_closure(last_offset)
        free = [channel for channel in self.channels.values() if channel.may_propose]
        everything = free if len(free) == len(self.channels) else []
        return _propose(everything, "end", reason, last_offset)

    def pending_end_applied(self, pending: PendingCut) -> None:
        """A channel has made its last cut; the last channel ends the session."""
        if self.state is SessionState.OPEN and all(
            channel.is_ended_by_pending for channel in self.channels.values()
        ):
            # An heir may know no message of the session: its event has to be the same.
            self.last_context = MessageContext.nothing(pending.last_offset)
            self.begin_end(pending.reason)
            self.span_finished()

    # -- settling and ending --------------------------------------------------------------------

    def span_finished(self) -> None:
        """Something settled: release messages; publish the ended event after the last span."""
        for stream in self.streams.all:
            while stream.messages and self._is_done(stream, stream.messages[0]):
                self._ports.release(stream.release_first())
        if self.intake.closure is not None:
            self.intake.settle()
        if self.state is SessionState.ENDING and self._may_end:
            if self.end_reason == "abort":
                self.second_pass.drop()
            self.second_pass.begin()
            # It may have come back here from within, when there was nothing to hear again.
            if self.state is SessionState.ENDING and not self.second_pass.holds_end:
                self._tell_end()

    def published_offsets(self) -> Iterator[int]:
        """Open messages whose events are on the topic already."""
        for stream in self.streams.all:
            for received in stream.messages:
                if received.had_events and not received.open_records:
                    yield received.context.offset
            yield from filter(self._ports.is_published, stream.window.offsets)

    @property
    def _may_end(self) -> bool:
        """Whether nothing of this session, nor of the one before it, is outstanding."""
        return all(channel.is_settled for channel in self.channels.values()) and not any(
            received.open_records or received.awaits_older
            for stream in self.streams.all
            for received in stream.messages
        )

    # -- inside -------------------------------------------------------------------------------

    def begin_end(self, reason: str) -> None:
        self.end_reason = reason
        self.move_to(SessionState.ENDING)

    def older_ended(self, received: Received) -> None:
        """The sessions of the same key that this message superseded are over."""
        received.awaits_older -= 1
        self.span_finished()

    def _tell_end(self) -> None:
        self.move_to(SessionState.ENDED)
        known = len(self.channels)
        context = replace(self.last_context, channels=max(known, self.last_context.channels))
        record = self._records.ended(self.identity, context, self.streams.media, outcome_of(self))
        self._ports.publish(record, self._close)

    def _is_done(self, stream: Stream, received: Received) -> bool:
        if received.open_records or received.awaits_older or received.ends_session:
            return False
        channels = self.streams.channels
        for index in stream.channels:
            if channels[index].resume_sample < received.hold_until:
                return False
        return all(channels[i].resume_sample >= sample for i, sample in received.cuts.items())

    def _close(self) -> None:
        if self.state is not SessionState.ENDED:
            return
        self.move_to(SessionState.CLOSED)
        for stream in self.streams.all:
            while stream.messages:
                self._ports.release(stream.release_first())
        self._ports.closed(self)
        for on_closed in self._on_closed:
            on_closed()


def _propose(channels: list[Channel], kind: CutKind, reason: EndReason, last_offset: int) -> bool:
    for channel in channels:
        channel.propose(kind, reason, last_offset)
    return bool(channels)
