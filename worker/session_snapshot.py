"""A session as an heir and as its listeners need it: the map entry and the totals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oasr.audio.segmenter import EndReason
from worker.errors import ErrorCode
from worker.events import ChannelTotals, Outcome
from worker.publisher import role_of
from worker.reorder import moment_after, moment_at
from worker.second_pass import PassState
from worker.session_map import Dropped, SessionEntry, StreamEntry, key_hash
from worker.spans import PendingState
from worker.streams import Anchor, Stream

if TYPE_CHECKING:
    from worker.sessions import Session

DUPLICATE = 1  # code of a reason in the session map


def entry_of(
    session: Session, received_up_to: int, hash_key: Callable[[bytes], int]
) -> SessionEntry:
    """The session as of its last finished cuts; `received_up_to` is the last offset read."""
    identity = session.identity
    streams = tuple(session.streams.all)
    dormant = not any(stream.messages or stream.window for stream in streams)
    closure = session.intake.closure
    return SessionEntry(
        # The hash of a key that is listed is not written, but made of the key.
        key_hash=key_hash(identity.key) if dormant else hash_key(identity.key),
        origin=identity.origin,
        position_ms=identity.position_ms,
        from_sample=identity.from_sample,
        dropped=tuple(
            Dropped(stream.first_channel, DUPLICATE, dropped)
            for stream in streams
            if (dropped := _anchor(stream).dropped_samples)
        ),
        streams=tuple(_stream_entry(session, stream, received_up_to) for stream in streams),
        closed_behind=None if closure is None else closure.last_offset,
        second_pass=session.second_pass.was_asked,
        key=identity.key if dormant else None,
    )


def still_unclaimed(entry: SessionEntry, received_up_to: int, highest: int) -> SessionEntry:
    """A former owner's entry none of whose messages has come again so far."""
    return replace(
        entry,
        streams=tuple(_unclaimed(stream, received_up_to, highest) for stream in entry.streams),
    )


def _unclaimed(stream: StreamEntry, received_up_to: int, highest: int) -> StreamEntry:
    first_open = _unread(stream.first_open, received_up_to, highest)
    return replace(
        stream, first_open=first_open, moment=None if first_open is None else stream.moment
    )


def _unread(first_open: int | None, received_up_to: int, highest: int) -> int | None:
    """Where the replay of a stream goes on; None if only new messages are to come."""
    if first_open is None:
        return None
    unread = max(first_open, received_up_to + 1)
    return unread if unread <= highest else None


def _anchor(stream: Stream) -> Anchor:
    return stream.anchor_of(stream.messages[0]) if stream.messages else stream.next_anchor()


def _first_open(session: Session, stream: Stream, received_up_to: int) -> int | None:
    """Where a replay of the stream begins; None if only new messages are to come."""
    lowest = stream.lowest_open
    if lowest is not None:
        return lowest
    # In the middle of a replay, what the former owner had received may still come.
    return _unread(stream.min_offset, received_up_to, session.streams.restored_below - 1)


def _moment(session: Session, stream: Stream, received_up_to: int) -> int | None:
    """Until when an heir only gathers; None where all that it will read is still to be taken."""
    until = stream.window.moment
    if until is not None:
        return until if stream.window or until > moment_after(received_up_to) else None
    if stream.messages:
        taken = stream.messages[0].moment
        lowest = stream.lowest_open
        return None if lowest is None or taken == moment_at(lowest) else taken
    if not stream.window:
        return None
    closure = session.intake.closure
    if closure is not None and closure.state is not PendingState.APPLIED:
        # What came behind it is held back by the partition, or was, and waits to be routed.
        received_up_to = min(received_up_to, closure.last_offset)
    return moment_after(received_up_to)


def _stream_entry(session: Session, stream: Stream, received_up_to: int) -> StreamEntry:
    anchor = _anchor(stream)
    first_open = _first_open(session, stream, received_up_to)
    return StreamEntry(
        first_open=first_open,
        next_sequence=anchor.next_sequence,
        start_sample=anchor.sample,
        skip_bytes=anchor.skip_bytes,
        media_rate=stream.media.sample_rate,
        encoding=stream.media.encoding.value,
        channels=stream.media.width,
        entries=tuple(session.channels[index].entry() for index in stream.channels),
        moment=None if first_open is None else _moment(session, stream, received_up_to),
    )


def outcome_of(session: Session) -> Outcome:
    """Reason and exact totals: received = decoded + silence + dropped."""
    totals = []
    for stream in sorted(session.streams.all, key=lambda stream: stream.first_channel):
        for index in stream.channels:
            channel = session.channels[index]
            aborted = channel.aborted_samples
            lost = stream.dropped_samples + aborted
            totals.append(
                ChannelTotals(
                    channel=index,
                    role=role_of(session.last_context.roles, index),
                    finals=channel.finals,
                    received=channel.decoded_samples + channel.silence_samples + lost,
                    decoded=channel.decoded_samples,
                    silence=channel.silence_samples,
                    dropped=(("duplicate", stream.dropped_samples), ("abort", aborted)),
                    filled=channel.filled_samples + channel.aborted_filled_samples,
                )
            )
    leftover = any(stream.leftover_bytes for stream in session.streams.all)
    # Of the message that ended the session alone: an heir may know no other, and says the same.
    warnings = session.last_context.options.warnings
    if leftover:
        warnings = (*warnings, ErrorCode.ODD_BYTES.value)
    if session.end_reason == EndReason.SHED.value:
        warnings = (*warnings, ErrorCode.SESSION_LIMIT.value)
    second_pass = session.second_pass
    if second_pass.state is PassState.IMPOSSIBLE:
        warnings = (*warnings, ErrorCode.SECOND_PASS_IMPOSSIBLE.value)
    second_finals = second_pass.finals if second_pass.state is PassState.DONE else None
    return Outcome(session.end_reason, tuple(totals), warnings, second_finals)
