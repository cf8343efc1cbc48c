"""What a partition's owner leaves to its heir: every open call, as of its last finished cut.

The map names every open offset, so that "not named" always means "finished". It travels in the
commit metadata (`worker.session_map_codec`) or, where it does not fit there, in a record that the
metadata names (`worker.state_reference`), and holds only for the topic, partition and offset
that it was written for.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

CutKind = Literal["cut", "end"]


class MapError(Exception):
    """Metadata that is undecodable, foreign or impossible: ignore it whole, replay instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PendingCut:
    """A cut that no audio decides; a replay applies it as given."""

    kind: CutKind
    reason: str  # a wire `end_reason`
    sample: int
    last_offset: int  # the last message that belongs before the cut


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """One channel as of its last finished cut."""

    channel: int
    resume_sample: int
    segment_index: int = 0  # of the next segment
    finals: int = 0
    decoded_samples: int = 0
    silence_samples: int = 0
    pending: PendingCut | None = None
    filled_samples: int = 0  # of the clock, for which no audio came


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One sequence of messages: all interleaved channels of a call, or one mono channel.

    The anchor is the first open message: it is expected with `next_sequence` (None: the
    producer sends none), its audio begins at `start_sample` after `skip_bytes` bytes. When
    nothing is open, the next new message is the anchor. A channel's resume sample may lie
    before `start_sample` when a declared gap lies between them.
    """

    first_open: int | None
    next_sequence: int | None
    start_sample: int
    skip_bytes: int
    media_rate: int
    encoding: str  # a wire name of `oasr.audio.pcm.Encoding`
    channels: int  # interleaved in each message
    entries: tuple[ChannelEntry, ...]
    # When the anchor was taken (`worker.reorder`), if messages came out of order: what comes
    # before that moment is gathered, and what was taken below `next_sequence` is skipped.
    moment: int | None = None


class Dropped(NamedTuple):
    """Samples of a channel before its resume sample that were not decoded, by reason code."""

    channel: int
    reason: int  # small and stable; the owner of the totals knows the names
    samples: int


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One session and origin; an origin is the offset of the message that began its clock."""

    key_hash: int
    origin: int
    position_ms: int = 0  # media time of sample 0
    from_sample: int | None = None  # first sample that the totals count; None: not resumed
    dropped: tuple[Dropped, ...] = ()
    streams: tuple[StreamEntry, ...] = ()
    closed_behind: int | None = None  # nothing waits for messages that come behind this offset
    second_pass: bool = False  # whether the call asked for one
    key: bytes | None = None  # of a session without an open message, from which it could be read


@dataclass(frozen=True, slots=True)
class SessionMap:
    """All that is open on one partition of the chunk topic below and at `highest`."""

    highest: int  # highest offset received; committed − 1 when nothing is above the commit
    sessions: tuple[SessionEntry, ...] = ()
    open_offsets: tuple[int, ...] = ()  # listed by themselves: dead letters, events, controls
    published: tuple[int, ...] = ()  # open, but their event is on the topic already


def key_hash(key: bytes) -> int:
    """48 bits of a message key's BLAKE2b digest."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "big")


def check(session_map: SessionMap, committed_offset: int) -> None:
    """Raises MapError if no owner could have committed this map with this offset."""
    highest = session_map.highest
    _require(highest >= committed_offset - 1, "the highest offset lies below the commit")
    for name in ("open_offsets", "published"):
        offsets = getattr(session_map, name)
        _require(_ascending(offsets), f"{name} are not ascending")
        _require(_within(offsets, committed_offset, highest), f"{name} lie outside the range")
    origins = [(entry.key_hash, entry.origin) for entry in session_map.sessions]
    _require(len(set(origins)) == len(origins), "a session is listed twice")
    for session in session_map.sessions:
        _check_session(session, committed_offset, highest)


def _check_session(session: SessionEntry, committed_offset: int, highest: int) -> None:
    _require(0 <= session.key_hash < 1 << 48, "a key hash has more than 48 bits")
    _require(0 <= session.origin <= highest, "an origin was never received")
    numbers = (
        session.position_ms,
        session.from_sample or 0,
        session.closed_behind or 0,
        *(n for d in session.dropped for n in d),
    )
    _require(min(numbers) >= 0, "a number of a session is negative")
    _require((session.closed_behind or 0) <= highest, "a closure is in the future")
    if session.key is not None:
        _require(key_hash(session.key) == session.key_hash, "a key has another hash")
    channels = [entry.channel for stream in session.streams for entry in stream.entries]
    _require(len(set(channels)) == len(channels), "a channel is listed twice")
    for stream in session.streams:
        _check_stream(stream, committed_offset, highest)


def _check_stream(stream: StreamEntry, committed_offset: int, highest: int) -> None:
    if stream.first_open is not None:
        _require(
            committed_offset <= stream.first_open <= highest,
            "a first open offset lies outside the range",
        )
    if stream.moment is not None:
        _require(stream.first_open is not None, "a moment without an open message")
        moments = range(2 * committed_offset, 2 * highest + 3)
        _require(stream.moment in moments, "a moment lies outside the range")
    numbers = (stream.next_sequence or 0, stream.start_sample, stream.skip_bytes)
    _require(min(numbers) >= 0, "a number of a stream is negative")
    _require(stream.media_rate > 0 and stream.channels > 0, "a stream has no rate or no channels")
    for entry in stream.entries:
        _check_channel(entry, highest)


def _check_channel(entry: ChannelEntry, highest: int) -> None:
    numbers = (entry.channel, entry.resume_sample, entry.decoded_samples, entry.silence_samples)
    _require(min(*numbers, entry.filled_samples) >= 0, "a number of a channel is negative")
    _require(0 <= entry.finals <= entry.segment_index, "there are more finals than segments")
    if entry.pending is not None:
        _require(entry.pending.sample >= entry.resume_sample, "a pending cut lies before the last")
        _require(0 <= entry.pending.last_offset <= highest, "a pending cut is in the future")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MapError(f"impossible map: {otherwise}")


def _ascending(offsets: tuple[int, ...]) -> bool:
    return all(a < b for a, b in itertools.pairwise(offsets))


def _within(offsets: Iterable[int], low: int, high: int) -> bool:
    return all(low <= offset <= high for offset in offsets)
