"""The streams of one session and the channels that they feed: which message belongs where."""

from __future__ import annotations

from collections.abc import Iterator

from worker.channels import Channel, ChannelOwner
from worker.codec import Chunk
from worker.messages import RawMessage
from worker.session_map import ChannelEntry, SessionEntry
from worker.streams import Anchor, MediaFormat, Received, Stream, is_control


class SessionStreams:
    """Finds the stream of a message and begins those that are new."""

    def __init__(self, owner: ChannelOwner) -> None:
        self.by_first_channel: dict[int, Stream] = {}
        self.channels: dict[int, Channel] = {}
        self.restored_below = 0  # offsets below are a replay; new streams begin above
        self._owner = owner

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
            self.by_first_channel[first] = Stream(media, first, anchor, min_offset)
            for channel in saved.entries:
                self.channels[channel.channel] = Channel(channel, media.sample_rate, self._owner)

    @property
    def all(self) -> Iterator[Stream]:
        """Every stream."""
        return iter(self.by_first_channel.values())

    @property
    def media(self) -> MediaFormat:
        """The format, which all streams of a session share."""
        return next(self.all).media

    @property
    def elapsed_ms(self) -> int:
        """Media time, from the session's origin, up to which audio came."""
        ends = [s.next_sample * 1000 // s.media.sample_rate for s in self.all]
        return max(ends, default=0)

    def of(self, chunk: Chunk) -> Stream | None:
        """The stream of a message; a control message without a channel goes with the first."""
        stream = self.by_first_channel.get(chunk.channel or 0)
        if stream is None and is_control(chunk) and not chunk.audio and self.by_first_channel:
            return self.by_first_channel[min(self.by_first_channel)]
        return stream

    def skips(self, raw: RawMessage, chunk: Chunk) -> bool:
        """Whether a replayed message was finished by the former owner."""
        stream = self.of(chunk)
        return raw.offset < (self.restored_below if stream is None else stream.min_offset)

    def fits(self, chunk: Chunk) -> bool:
        """Whether the session's format holds for this message."""
        if is_control(chunk) and not chunk.audio:
            return True
        media = MediaFormat.of(chunk)
        stream = self.of(chunk)
        ended = stream is not None and stream.ended
        return not ended and all(known.media == media for known in self.all)

    def is_duplicate(self, chunk: Chunk) -> bool:
        """Whether the session had a message of this sequence number, or one behind it."""
        stream = self.of(chunk)
        return stream is not None and stream.is_duplicate(chunk.sequence)

    def begin(self, chunk: Chunk, session_position_ms: int) -> Stream:
        """The stream of a message that is the first of its channels."""
        media = MediaFormat.of(chunk)
        first = chunk.channel or 0
        sample = 0
        if self.by_first_channel and chunk.position_ms is not None:
            ahead_ms = max(0, chunk.position_ms - session_position_ms)
            sample = round(ahead_ms * media.sample_rate / 1000)
        stream = Stream(media, first, Anchor(sample), self.restored_below)
        self.by_first_channel[first] = stream
        for index in stream.channels:
            entry = ChannelEntry(channel=index, resume_sample=sample)
            self.channels[index] = Channel(entry, media.sample_rate, self._owner)
        return stream

    def feed(self, stream: Stream, received: Received, audio: bytes) -> None:
        """Decode the audio of the message just begun and queue it for its channels."""
        start = stream.next_sample
        for index, samples in zip(stream.channels, stream.decode(received, audio), strict=True):
            self.channels[index].push(samples, start)
