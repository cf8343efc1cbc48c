"""The session map as commit metadata: `encode_metadata`, `decode_metadata`.

Numbers are written as small differences: offsets from the committed one, resume samples from
their stream's start, totals from what they are when nothing was dropped. A stereo call in its
tenth minute takes about 40 bytes. Version 2 adds what messages out of order and missing audio
leave behind; a map without that is written as version 1, which former workers read too.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final, TypeVar

from worker import session_map
from worker.map_format import MapFormat
from worker.metadata import Place, Reader, Writer
from worker.session_map import (
    ChannelEntry,
    CutKind,
    Dropped,
    MapError,
    PendingCut,
    SessionEntry,
    SessionMap,
    StreamEntry,
)

MAGIC: Final = "oasr1:"
MAGIC_2: Final = "oasr2:"
_T = TypeVar("_T")

# Positions in these tables are on the wire: append, never reorder.
_ENCODINGS: Final = ("pcm_s16le", "pcm_s16be", "pcm_f32le", "pcm_u8", "mulaw", "alaw")
_REASONS: Final = (
    *("silence", "max_length", "flush", "end", "idle"),
    *("ttl", "format_change", "shed", "error", "window"),
)
_KINDS: Final[tuple[CutKind, ...]] = ("cut", "end")


class _Session(IntFlag):
    POSITION = 1
    RESUMED = 2
    DROPPED = 4
    KEY = 8
    CLOSED = 256  # above the number of streams
    SECOND_PASS = 512


class _Stream(IntFlag):
    OPEN = 1
    SEQUENCE = 2
    SKIP = 4
    MOMENT = 128  # above the number of channels


_PENDING: Final = 1  # of a channel
_FILLED: Final = 16  # above the number of the channel


def encode_metadata(
    contents: SessionMap | None,
    topic_id: str,
    partition: int,
    committed_offset: int,
    start_counter: int = 0,
) -> str:
    """Commit metadata in ASCII, of any length; None writes the start counter alone.

    Raises ValueError for a map that the decoder would refuse.
    """
    place = Place(topic_id, partition, committed_offset)
    form = _FORMAT if contents is None or not _needs_2(contents) else _FORMAT_2
    return form.encode(contents, place, start_counter)


def decode_metadata(
    text: str | None, topic_id: str, partition: int, committed_offset: int
) -> tuple[SessionMap | None, int]:
    """The map (None if there is none) and the start counter of a commit's metadata.

    Raises MapError for metadata that is undecodable, foreign or impossible.
    """
    form = _FORMAT_2 if text and text.startswith(MAGIC_2) else _FORMAT
    return form.decode(text, Place(topic_id, partition, committed_offset))


def _needs_2(contents: SessionMap) -> bool:
    return any(
        session.closed_behind is not None
        or session.second_pass
        or any(stream.moment is not None for stream in session.streams)
        or any(entry.filled_samples for stream in session.streams for entry in stream.entries)
        for session in contents.sessions
    )


def _write_map(writer: Writer, contents: SessionMap, base: int) -> None:
    writer.unsigned(contents.highest - base + 1)
    for offsets in (contents.open_offsets, contents.published):
        _write_ascending(writer, offsets, base)
    writer.unsigned(len(contents.sessions))
    for session in contents.sessions:
        _write_session(writer, session, base)


def _read_map(reader: Reader, base: int) -> SessionMap:
    highest = base + reader.unsigned() - 1
    open_offsets = _read_ascending(reader, base)
    published = _read_ascending(reader, base)
    sessions = tuple(_read_session(reader, base) for _ in range(reader.unsigned()))
    return SessionMap(highest, sessions, open_offsets, published)


def _write_ascending(writer: Writer, offsets: tuple[int, ...], base: int) -> None:
    writer.unsigned(len(offsets))
    previous = base
    for offset in offsets:
        writer.unsigned(offset - previous)
        previous = offset


def _read_ascending(reader: Reader, base: int) -> tuple[int, ...]:
    offsets = []
    for _ in range(reader.unsigned()):
        base += reader.unsigned()
        offsets.append(base)
    return tuple(offsets)


def _write_session(writer: Writer, session: SessionEntry, base: int) -> None:
    flags = _Session(0)
    flags |= _Session.POSITION if session.position_ms else 0
    flags |= _Session.RESUMED if session.from_sample is not None else 0
    flags |= _Session.DROPPED if session.dropped else 0
    flags |= _Session.KEY if session.key is not None else 0
    flags |= _Session.CLOSED if session.closed_behind is not None else 0
    flags |= _Session.SECOND_PASS if session.second_pass else 0
    writer.unsigned(flags | len(session.streams) << 4)
    if session.key is None:
        writer.fixed(session.key_hash, 6)
    else:
        writer.text(session.key)
    writer.signed(base - session.origin)
    if session.position_ms:
        writer.unsigned(session.position_ms)
    if session.from_sample is not None:
        writer.unsigned(session.from_sample)
    if session.dropped:
        writer.unsigned(len(session.dropped))
        for dropped in session.dropped:
            writer.unsigned(*dropped)
    if session.closed_behind is not None:
        writer.signed(session.closed_behind - base)
    for stream in session.streams:
        _write_stream(writer, stream, base)


def _read_session(reader: Reader, base: int) -> SessionEntry:
    flags = reader.unsigned()
    key = reader.text() if flags & _Session.KEY else None
    hashed = reader.fixed(6) if key is None else session_map.key_hash(key)
    origin = base - reader.signed()
    position_ms = reader.unsigned() if flags & _Session.POSITION else 0
    from_sample = reader.unsigned() if flags & _Session.RESUMED else None
    dropped = tuple(
        Dropped(reader.unsigned(), reader.unsigned(), reader.unsigned())
        for _ in range(reader.unsigned() if flags & _Session.DROPPED else 0)
    )
    closed_behind = base + reader.signed() if flags & _Session.CLOSED else None
    streams = tuple(_read_stream(reader, base) for _ in range((flags & 0xFF) >> 4))
    return SessionEntry(
        key_hash=hashed,
        origin=origin,
        position_ms=position_ms,
        from_sample=from_sample,
        dropped=dropped,
        streams=streams,
        closed_behind=closed_behind,
        second_pass=bool(flags & _Session.SECOND_PASS),
        key=key,
    )


def _write_stream(writer: Writer, stream: StreamEntry, base: int) -> None:
    flags = _Stream(0)
    flags |= _Stream.OPEN if stream.first_open is not None else 0
    flags |= _Stream.SEQUENCE if stream.next_sequence is not None else 0
    flags |= _Stream.SKIP if stream.skip_bytes else 0
    flags |= _Stream.MOMENT if stream.moment is not None else 0
    writer.unsigned(flags | stream.channels << 3)
    if stream.first_open is not None:
        writer.unsigned(stream.first_open - base)
    if stream.next_sequence is not None:
        writer.unsigned(stream.next_sequence)
    writer.unsigned(stream.start_sample)
    if stream.skip_bytes:
        writer.unsigned(stream.skip_bytes)
    if stream.moment is not None:
        writer.unsigned(stream.moment - 2 * base)
    # Rates are mostly multiples of 1000: 8 and 16 take one byte.
    whole = stream.media_rate % 1000 == 0
    rate = stream.media_rate // 1000 * 2 if whole else stream.media_rate * 2 + 1
    writer.unsigned(rate, _ENCODINGS.index(stream.encoding), len(stream.entries))
    for entry in stream.entries:
        _write_channel(writer, entry, stream.start_sample, base)


def _read_stream(reader: Reader, base: int) -> StreamEntry:
    flags = reader.unsigned()
    first_open = base + reader.unsigned() if flags & _Stream.OPEN else None
    next_sequence = reader.unsigned() if flags & _Stream.SEQUENCE else None
    start_sample = reader.unsigned()
    skip_bytes = reader.unsigned() if flags & _Stream.SKIP else 0
    moment = 2 * base + reader.unsigned() if flags & _Stream.MOMENT else None
    rate = reader.unsigned()
    media_rate = rate >> 1 if rate & 1 else (rate >> 1) * 1000
    encoding = _pick(_ENCODINGS, reader.unsigned())
    entries = tuple(_read_channel(reader, start_sample, base) for _ in range(reader.unsigned()))
    return StreamEntry(
        first_open=first_open,
        next_sequence=next_sequence,
        start_sample=start_sample,
        skip_bytes=skip_bytes,
        media_rate=media_rate,
        encoding=encoding,
        channels=(flags & 0x7F) >> 3,
        entries=entries,
        moment=moment,
    )


def _write_channel(writer: Writer, entry: ChannelEntry, start_sample: int, base: int) -> None:
    flags = _PENDING if entry.pending is not None else 0
    flags |= _FILLED if entry.filled_samples else 0
    writer.unsigned(entry.channel << 1 | flags)
    writer.signed(entry.resume_sample - start_sample)
    writer.unsigned(entry.segment_index, entry.segment_index - entry.finals)
    writer.unsigned(entry.decoded_samples)
    writer.signed(entry.resume_sample - entry.decoded_samples - entry.silence_samples)
    if entry.filled_samples:
        writer.unsigned(entry.filled_samples)
    if entry.pending is not None:
        pending = entry.pending
        code = _REASONS.index(pending.reason) << 1 | _KINDS.index(pending.kind)
        writer.unsigned(code, pending.sample - entry.resume_sample)
        writer.signed(pending.last_offset - base)


def _read_channel(reader: Reader, start_sample: int, base: int) -> ChannelEntry:
    head = reader.unsigned()
    resume_sample = start_sample + reader.signed()
    segment_index = reader.unsigned()
    finals = segment_index - reader.unsigned()
    decoded_samples = reader.unsigned()
    silence_samples = resume_sample - decoded_samples - reader.signed()
    filled_samples = reader.unsigned() if head & _FILLED else 0
    pending = None
    if head & _PENDING:
        code = reader.unsigned()
        pending = PendingCut(
            kind=_pick(_KINDS, code & 1),
            reason=_pick(_REASONS, code >> 1),
            sample=resume_sample + reader.unsigned(),
            last_offset=base + reader.signed(),
        )
    return ChannelEntry(
        channel=(head & 0xF) >> 1,
        resume_sample=resume_sample,
        segment_index=segment_index,
        finals=finals,
        decoded_samples=decoded_samples,
        silence_samples=silence_samples,
        pending=pending,
        filled_samples=filled_samples,
    )


def _pick(table: tuple[_T, ...], index: int) -> _T:
    if index >= len(table):
        raise MapError("an unknown code")
    return table[index]


_FORMAT: Final = MapFormat(MAGIC, session_map.check, _write_map, _read_map)
_FORMAT_2: Final = MapFormat(MAGIC_2, session_map.check, _write_map, _read_map)
