"""The streams of one session and the channels that they feed: which message belongs where."""

from __future__ import annotations

from collections.abc import Iterator

from worker.channels import Channel
from worker.codec import Chunk, Event
from worker.media_clock import silence
from worker.messages import RawMessage
from worker.records import Gap
from worker.reorder import ReorderLimits, ReorderWindow
from worker.session_map import ChannelEntry, SessionEntry
from worker.spans import ChannelOwner
from worker.streams import Anchor, MediaFormat, Received, Stream, is_bare_control

LOWEST_RESUMED = 2  # producers count from 0 or 1; a first message above goes on with a call


class SessionStreams:
    """Finds the stream of a message and begins those that are new."""

    def __init__(self, owner: ChannelOwner, reorder: ReorderLimits) -> None:
        # In the order of their beginnings, which the session map keeps: what goes with the
        # first stream goes with the same one after a take-over.
        self.all: list[Stream] = []
        self.channels: dict[int, Channel] = {}
        self.restored_below = 0  # offsets below are a replay; new streams begin above
        self._by_channel: dict[int, Stream] = {}
        self._owner = owner
        self._reorder = reorder

    def restore(self, entry: SessionEntry, highest: int) -> None:
        """Rebuild all streams as a former owner, who had read up to `highest`, left them."""
        self.restored_below = highest + 1
        dropped = {d.channel: d.samples for d in entry.dropped}
        for saved in entry.streams:
            media = MediaFormat.restored(saved.encoding, saved.media_rate, saved.channels)
            first = saved.entries[0].channel
            anchor = Anchor(
                saved.start_sample, saved.skip_bytes, saved.next_sequence, dropped.get(first, 0)
            )
            min_offset = highest + 1 if saved.first_open is None else saved.first_open
            window = ReorderWindow(self._reorder, media.byte_rate, saved.moment)
            self._add(Stream(media, first, anchor, min_offset, window), saved.entries)

    @property
    def media(self) -> MediaFormat:
        """The format, which all streams of a session share."""
        return self.all[0].media

    @property
    def elapsed_ms(self) -> int:
        """Media time, from the session's origin, up to which audio came."""
        ends = [s.next_sample * 1000 // s.media.sample_rate for s in self.all]
        return max(ends, default=0)

    def of(self, chunk: Chunk) -> Stream | None:
        """The stream of a message, None if it begins one, or asks something of an unknown one.

        What concerns the whole session goes with the first stream.
        """
        channel = chunk.channel or 0
        stream = self._by_channel.get(channel)
        if not is_bare_control(chunk):
            return stream if stream is not None and stream.first_channel == channel else None
        if chunk.channel is None or (stream is None and chunk.event is Event.ABORT):
            return self.all[0] if self.all else None
        return stream

    def named_by(self, chunk: Chunk) -> Iterator[Stream]:
        """The streams that a control message means: those of its channel, or all."""
        return (s for s in self.all if chunk.channel is None or chunk.channel in s.channels)

    def skips(self, raw: RawMessage, chunk: Chunk) -> bool:
        """Whether a replayed message was finished by the former owner."""
        stream = self.of(chunk)
        return raw.offset < (self.restored_below if stream is None else stream.min_offset)

    def fits(self, chunk: Chunk) -> bool:
        """Whether the session's format holds for this message."""
        if is_bare_control(chunk):
            return True
        stream = self.of(chunk)
        if stream is not None and stream.ended:
            return False
        return all(known.media.is_of(chunk) for known in self.all)

    def is_duplicate(self, chunk: Chunk) -> bool:
        """Whether the session had a message of this sequence number, or one behind it.

        Numbers that begin anew together with another format are those of another source.
        """
        stream = self.of(chunk)
        if stream is None or not stream.is_duplicate(chunk.sequence):
            return False
        begins_anew = chunk.sequence is not None and chunk.sequence < LOWEST_RESUMED
        return not (begins_anew and not self.fits(chunk))

    def begin(self, chunk: Chunk, session_position_ms: int) -> Stream:
        """The stream of a message that is the first of its channels."""
        media = MediaFormat.of(chunk)
        sample = 0
        if self.all and chunk.position_ms is not None:
            ahead_ms = max(0, chunk.position_ms - session_position_ms)
            sample = round(ahead_ms * media.sample_rate / 1000)
        window = ReorderWindow(self._reorder, media.byte_rate)
        stream = Stream(media, chunk.channel or 0, Anchor(sample), self.restored_below, window)
        entries = tuple(ChannelEntry(channel=i, resume_sample=sample) for i in stream.channels)
        self._add(stream, entries)
        return stream

    def feed(self, stream: Stream, received: Received, audio: bytes) -> None:
        """Decode the audio of the message just begun and queue it for its channels."""
        start = stream.next_sample
        for index, samples in zip(stream.channels, stream.decode(received, audio), strict=True):
            self.channels[index].push(samples, start)

    def pass_over(self, stream: Stream, gap: Gap, is_filled: bool) -> None:
        """Put silence in the place of missing audio, or end what is open and hear nothing."""
        for index in stream.channels:
            channel = self.channels[index]
            channel.note_gap(gap)
            if is_filled:
                at = gap.start_sample
                for piece in silence(gap.end_sample - gap.start_sample):
                    channel.push(piece, at)
                    at += len(piece)
            else:
                channel.skip(gap.end_sample)
        stream.pass_over(gap.end_sample - gap.start_sample)

    def _add(self, stream: Stream, entries: tuple[ChannelEntry, ...]) -> None:
        self.all.append(stream)
        for entry in entries:
            self._by_channel[entry.channel] = stream
            self.channels[entry.channel] = Channel(entry, stream.media.sample_rate, self._owner)
