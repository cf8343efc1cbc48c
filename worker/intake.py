"""What comes of a session's messages: their order is restored, then each is taken in turn.

A message that comes too early waits in the window of its stream (`worker.reorder`). A window is
closed, and what is missing declared, when it is full, and before whatever cuts where it stands:
`flush`, `end`, `abort`, a new origin, and the closure that a silent session's owner committed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oasr.audio.segmenter import EndReason
from worker.codec import Chunk, Event
from worker.events import MissingAudio
from worker.media_clock import missing_samples
from worker.messages import OutRecord, RawMessage
from worker.ports import Ports
from worker.records import Gap
from worker.reorder import Waiting, moment_after, moment_at
from worker.spans import PendingState
from worker.streams import MessageContext, Received, Stream, forces_cut, is_bare_control

if TYPE_CHECKING:
    from worker.sessions import Session


@dataclass(slots=True)
class Closure:
    """All windows are closed behind an offset, because nothing more came: a commit carries it."""

    last_offset: int
    state: PendingState = PendingState.PROPOSED

    @property
    def moment(self) -> int:
        """When it is made."""
        return moment_after(self.last_offset)


class Intake:
    """Takes the messages of one session in the order of their numbers."""

    def __init__(self, session: Session, ports: Ports) -> None:
        self.closure: Closure | None = None
        self.catches_up = False  # an heir that has not reached all that its map speaks of
        self._session = session
        self._ports = ports
        self._streams = session.streams

    def restore(self, closed_behind: int | None) -> None:
        """Go on as a former owner's map says."""
        if closed_behind is not None:
            self.closure = Closure(closed_behind, PendingState.COMMITTED)
        windows = (stream.window.moment for stream in self._streams.all)
        self.catches_up = closed_behind is not None or any(m is not None for m in windows)

    # -- messages -----------------------------------------------------------------------------

    def drop_duplicate(self, raw: RawMessage, chunk: Chunk) -> None:
        """Count a repeated or late message, unless a former owner did; it is done at once."""
        stream = self._streams.of(chunk)
        moment = moment_at(raw.offset)
        if stream is None or not _is_before(stream, moment - 1):
            if stream is not None:
                samples = stream.drop(len(chunk.audio or b""))
                self._ports.counters.audio("dropped", samples / stream.media.sample_rate)
            self._ports.release(raw.offset, "duplicate")
            return
        if stream.window.moment == moment and chunk.event in (Event.END, Event.ABORT):
            self.accept(raw, chunk)  # higher numbers came before it and are open
            return
        self._ports.release(raw.offset, "skipped")
        if stream.window.moment == moment:
            self._go_on(stream, moment)

    def accept(self, raw: RawMessage, chunk: Chunk) -> Received | None:
        """Take a message that belongs here; returns it if it is taken now and stays open."""
        stream = self._streams.of(chunk)
        if stream is None:
            if self._streams.all and is_bare_control(chunk):
                self._ports.release(raw.offset, "ignored")  # of a channel without audio
                return None
            stream = self._streams.begin(chunk, self._session.identity.position_ms)
        moment = moment_at(raw.offset)
        window, sequence, expected = stream.window, chunk.sequence, stream.next_sequence
        if window.moment is not None and moment < window.moment:
            self._gather(stream, raw, chunk)
            return None
        window.moment = None
        is_ahead = sequence is not None and expected is not None and sequence > expected
        if sequence is not None and is_ahead and not forces_cut(chunk):
            window.hold(sequence, Waiting(raw, chunk))
            self._go_on(stream, moment)
            return None
        if sequence is None or chunk.event is not Event.AUDIO:
            self._close_before(stream, chunk, moment)
        received = self._take(stream, raw, chunk)
        if window:
            self._drain(stream, moment)
        self._session.pump()
        return received

    # -- windows ------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether a message waits for others."""
        return any(stream.window for stream in self._streams.all)

    def close(self, moment: int) -> None:
        """Take everything that waits; what is missing before it is missing for good."""
        for stream in self._streams.all:
            self._close(stream, moment)

    def propose_closure(self, last_offset: int) -> bool:
        """Ask for a closure that a commit has to carry first; False while another is listed."""
        if self.closure is not None:
            return False
        self.closure = Closure(last_offset)
        return True

    def closure_committed(self, carried: Closure) -> None:
        """A commit that names this closure is acknowledged."""
        if self.closure is carried and carried.state is PendingState.PROPOSED:
            self._make(carried)

    def catch_up(self, offset: int) -> None:
        """All messages below `offset` have come: go on as the former owner did by then."""
        for stream in self._streams.all:
            until = stream.window.moment
            if until is not None and until < moment_at(offset):
                self._go_on(stream, until)
        closure = self.closure
        waits = closure is not None and closure.state is PendingState.COMMITTED
        if closure is not None and waits and offset > closure.last_offset:
            waits = False
            self._make(closure)
        self.catches_up = waits or any(s.window.moment is not None for s in self._streams.all)

    def settle(self) -> None:
        """Forget the closure once no message is open that was taken by then."""
        closure = self.closure
        if closure is not None and closure.state is PendingState.APPLIED:
            firsts = (s.messages[0] for s in self._streams.all if s.messages)
            if all(first.moment > closure.moment for first in firsts):
                self.closure = None

    def _make(self, closure: Closure) -> None:
        closure.state = PendingState.APPLIED
        self.close(closure.moment)
        self._session.pump()

    def _gather(self, stream: Stream, raw: RawMessage, chunk: Chunk) -> None:
        """Keep a message that the former owner had taken, or that waited, until it is time."""
        if chunk.sequence is None or forces_cut(chunk):
            self._ports.release(raw.offset, "skipped")  # it never waits: it was finished
        else:
            stream.window.hold(chunk.sequence, Waiting(raw, chunk))

    def _go_on(self, stream: Stream, moment: int) -> None:
        """Everything is gathered: take what is due."""
        stream.window.moment = None
        self._drain(stream, moment)
        self._session.pump()

    def _close_before(self, stream: Stream, chunk: Chunk, moment: int) -> None:
        """Close the windows of whatever a message cuts, or follows without a number."""
        if forces_cut(chunk):
            everything = self._streams.all if chunk.event is Event.ABORT else None
            for other in everything or list(self._streams.named_by(chunk)):
                numbered = other is stream and chunk.event is Event.FLUSH
                below = chunk.sequence if numbered else None
                self._close(other, moment, math.inf if below is None else below)
        elif chunk.audio or chunk.discarded_ms:
            self._close(stream, moment)

    def _close(self, stream: Stream, moment: int, below: float = math.inf) -> None:
        if _is_before(stream, moment):
            return
        stream.window.moment = None
        self._drain(stream, moment, below)

    def _drain(self, stream: Stream, moment: int, below: float = 0) -> None:
        """Take what waits and is due, and everything with a number below `below`."""
        window = stream.window
        while window:
            lowest = window.lowest_sequence
            due = stream.next_sequence is None or lowest <= stream.next_sequence
            if not due and lowest >= below and not window.is_full:
                return
            self._take(stream, *window.take(lowest), moment)

    # -- a message's turn ---------------------------------------------------------------------

    def _take(
        self, stream: Stream, raw: RawMessage, chunk: Chunk, moment: int | None = None
    ) -> Received | None:
        """Do what a message asks for; `moment` is when, if it had to wait."""
        session = self._session
        gap = stream.gap_before(chunk.sequence)
        opens = raw.offset == session.identity.origin
        if chunk.discarded_ms:
            stream.forget_half_frame()
        in_order = gap is None and not chunk.discarded_ms and moment is None
        if in_order and not chunk.audio and not opens and not forces_cut(chunk):
            stream.count_message(chunk.sequence)
            self._ports.release(raw.offset)
            return None
        received = stream.begin(MessageContext.of(raw, chunk), chunk.sequence, moment)
        session.last_context = received.context
        if opens:
            received.awaits_older = 1  # until the partition has told those that it supersedes
            opened = self._ports.records.opened(session.identity, received.context, stream.media)
            self._event(received, opened)
        audio = chunk.audio
        if gap is not None or chunk.position_ms is not None or chunk.discarded_ms:
            audio = self._pass_over_missing(stream, received, chunk, gap)
        if audio:
            self._streams.feed(stream, received, audio)
        self._control(received, chunk)
        return received

    def _control(self, received: Received, chunk: Chunk) -> None:
        channels = self._streams.channels
        if chunk.event is Event.FLUSH:
            received.cuts = {
                index: channels[index].cut(EndReason.FLUSH)
                for stream in self._streams.named_by(chunk)
                for index in stream.channels
            }
        elif chunk.event is Event.END:
            self._end(received, chunk)
        elif chunk.event is Event.ABORT:
            received.ends_session = True
            for channel in channels.values():
                channel.abort()
            self._session.begin_end("abort")

    def _end(self, received: Received, chunk: Chunk) -> None:
        """An `end` with a channel ends that one, and the session with the last of them."""
        for stream in self._streams.named_by(chunk):
            if not stream.ended:
                received.ends_session = True
                stream.ended = True
                for index in stream.channels:
                    self._streams.channels[index].cut(EndReason.END)
        if all(stream.ended for stream in self._streams.all):
            self._session.begin_end("end")

    def _pass_over_missing(
        self, stream: Stream, received: Received, chunk: Chunk, gap: tuple[int, int] | None
    ) -> bytes | None:
        """Tell what is missing before a message, and move the clock if the message says so.

        Returns the audio that is still to be decoded: a frame begun earlier ends before a pause.
        """
        audio, head_bytes = chunk.audio, received.skip_bytes
        rate, limits = stream.media.sample_rate, self._ports.limits.clock
        missing = (chunk.discarded_ms * rate + 500) // 1000
        if audio and len(audio) > head_bytes and chunk.position_ms is not None:
            stated_ms = chunk.position_ms - self._session.identity.position_ms
            at = received.start_sample + missing
            missing += missing_samples(stated_ms, at, rate, limits, gap is not None)
        if gap is None and not missing:
            return audio
        if audio and missing and head_bytes:
            self._streams.feed(stream, received, audio[:head_bytes])
            audio = audio[head_bytes:]
        start = stream.next_sample
        reason = "discarded" if chunk.discarded_ms else "pause" if gap is None else "missing"
        place = Gap(start, start + missing, reason)
        received.hold_until = max(received.hold_until, place.end_sample)
        is_filled = limits.is_filled(missing, rate)
        self._streams.pass_over(stream, place, is_filled)
        told = MissingAudio(place, missing if is_filled else 0, gap)
        record = self._ports.records.gap(
            self._session.identity, received.context, stream.media, stream.first_channel, told
        )
        self._event(received, record)
        return audio

    def _event(self, received: Received, record: OutRecord) -> None:
        """Publish an event that a message caused, unless the former owner did."""
        received.had_events = True
        if self._ports.is_published(received.context.offset):
            return
        received.open_records += 1
        self._ports.publish(record, lambda: self._settled(received))

    def _settled(self, received: Received) -> None:
        """Something that a message waited for has happened."""
        received.open_records -= 1
        self._session.span_finished()


def _is_before(stream: Stream, moment: int) -> bool:
    """Whether a moment lies before the one until which an heir only gathers."""
    return stream.window.moment is not None and moment < stream.window.moment
