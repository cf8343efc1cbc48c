"""The messages of one stream of a session: bytes become samples on the media clock.

A session of interleaved audio has one stream for all of its channels; a session of separate mono
messages has one stream a channel. A message stays in its stream, in the order of its arrival, until
every channel that it carries has finished the spans which use it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oasr.audio import pcm
from worker.codec import Chunk, Event
from worker.messages import RawMessage
from worker.options import SessionOptions
from worker.reorder import ReorderLimits, ReorderWindow, moment_at

Samples = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """How the bytes of a stream are to be read; a change of it starts a new origin."""

    encoding: pcm.Encoding
    sample_rate: int
    width: int  # interleaved channels in a message

    @classmethod
    def of(cls, chunk: Chunk) -> MediaFormat:
        """The format of a message whose codec has made sure that it states one."""
        if chunk.encoding is None or chunk.sample_rate is None:
            raise ValueError("the message states no format")
        return cls(chunk.encoding, chunk.sample_rate, chunk.width)

    def is_of(self, chunk: Chunk) -> bool:
        """Whether a message states this format."""
        return (
            self.encoding is chunk.encoding
            and self.sample_rate == chunk.sample_rate
            and self.width == chunk.width
        )

    @classmethod
    def restored(cls, encoding: str, sample_rate: int, width: int) -> MediaFormat:
        """The format that a session map names."""
        return cls(pcm.Encoding(encoding), sample_rate, width)

    @property
    def frame_bytes(self) -> int:
        return self.encoding.sample_bytes * self.width

    @property
    def byte_rate(self) -> int:
        """Bytes of a second."""
        return self.frame_bytes * self.sample_rate


@dataclass(slots=True)  # one a message: frozen ones take three times as long to make
class MessageContext:
    """What a segment takes over from the message that holds its first sample."""

    offset: int
    timestamp_ms: int
    options: SessionOptions
    channels: int
    roles: tuple[str, ...]
    priority: int
    traceparent: str | None
    encoding: pcm.Encoding | None = None
    position_ms: int | None = None
    audio_bytes: int = 0

    @classmethod
    def of(cls, raw: RawMessage, chunk: Chunk) -> MessageContext:
        return cls(
            raw.offset,
            raw.timestamp_ms,
            chunk.options,
            chunk.channels,
            chunk.roles,
            chunk.priority,
            chunk.traceparent,
            chunk.encoding,
            chunk.position_ms,
            0 if chunk.audio is None else len(chunk.audio),
        )

    @classmethod
    def nothing(cls, offset: int) -> MessageContext:
        """The context of audio whose message is not known any more."""
        return cls(offset, 0, SessionOptions(), 1, (), 0, None)


def is_bare_control(chunk: Chunk) -> bool:
    """Whether the message is something else than audio and carries none."""
    return chunk.event is not Event.AUDIO and not chunk.audio


def forces_cut(chunk: Chunk) -> bool:
    """Whether the message cuts its session's channels where it stands."""
    return chunk.event in (Event.FLUSH, Event.END, Event.ABORT)


@dataclass(slots=True)
class Received:
    """A message of the stream that is not finished yet."""

    context: MessageContext
    start_sample: int  # first whole frame that begins in this message
    skip_bytes: int  # bytes before it, the rest of a frame begun earlier
    hold_until: int  # finished once every channel's resume sample is here
    expected_sequence: int | None
    dropped_before: int  # samples of duplicates dropped before this message was taken
    moment: int  # when it was taken: later than it came, if it had to wait for others
    cuts: dict[int, int] = field(default_factory=dict)  # channel -> sample of a forced cut
    open_records: int = 0  # events that the broker has not acknowledged
    awaits_older: int = 0  # sessions that it superseded and whose end is not acknowledged
    had_events: bool = False
    ends_session: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a stream's audio goes on: the position of the next message to come."""

    sample: int = 0
    skip_bytes: int = 0
    next_sequence: int | None = None
    dropped_samples: int = 0


class Stream:
    """Turns the messages of one stream into int16 samples, one array per channel."""

    def __init__(
        self,
        media: MediaFormat,
        first_channel: int,
        anchor: Anchor,
        min_offset: int,
        window: ReorderWindow | None = None,
    ) -> None:
        self.media = media
        self.window = ReorderWindow(ReorderLimits(), media.byte_rate) if window is None else window
        self.first_channel = first_channel
        self.min_offset = min_offset  # a replay skips what lies below
        self.messages: deque[Received] = deque()
        self.reordered = 0  # open messages that had to wait
        self.ended = False
        self.next_sequence = anchor.next_sequence
        self.dropped_samples = anchor.dropped_samples
        self._next_sample = anchor.sample
        self._skip_bytes = anchor.skip_bytes
        self._carry = b""
        self._frame_bytes = media.frame_bytes
        self.channels = range(first_channel, first_channel + media.width)

    @property
    def next_sample(self) -> int:
        """The first sample that has not been decoded yet."""
        return self._next_sample

    @property
    def leftover_bytes(self) -> int:
        """Bytes of a frame whose end has not come."""
        return len(self._carry)

    def is_duplicate(self, sequence: int | None) -> bool:
        """Whether a message of this number is here already, or comes too late."""
        expected = self.next_sequence
        if sequence is None or expected is None:
            return False
        return sequence < expected or sequence in self.window

    def drop(self, audio_bytes: int) -> int:
        """Count the samples of a message that is not decoded; returns their number per channel."""
        samples = audio_bytes // self.media.frame_bytes
        self.dropped_samples += samples
        return samples

    def gap_before(self, sequence: int | None) -> tuple[int, int] | None:
        """The missing numbers (first, last) before this one; forgets a half-received frame."""
        expected = self.next_sequence
        if sequence is None or expected is None or sequence <= expected:
            return None
        self.forget_half_frame()
        return expected, sequence - 1

    def forget_half_frame(self) -> None:
        """What was begun is not continued by the next bytes."""
        self._carry = b""
        self._skip_bytes = 0

    def begin(
        self, context: MessageContext, sequence: int | None, moment: int | None = None
    ) -> Received:
        """Append a message without audio yet; its place on the clock is the stream's next byte.

        `moment` is when it is taken, if it had to wait.
        """
        sample, skip_bytes = self._place()
        expected = self.next_sequence
        if expected is not None and sequence is not None and sequence < expected:
            expected = sequence  # an end behind which higher numbers came
        if moment is None:
            moment = 2 * context.offset + 1  # its own
        elif moment != moment_at(context.offset):
            self.reordered += 1
        received = Received(
            context, sample, skip_bytes, sample, expected, self.dropped_samples, moment
        )
        self.messages.append(received)
        self.count_message(sequence)
        return received

    def count_message(self, sequence: int | None) -> None:
        """A message without audio and without consequences takes only its number."""
        if sequence is not None:
            self.next_sequence = sequence + 1

    def release_first(self) -> int:
        """Take the first open message out; returns its offset."""
        received = self.messages.popleft()
        offset = received.context.offset
        if self.reordered and received.moment != moment_at(offset):
            self.reordered -= 1
        return offset

    @property
    def lowest_open(self) -> int | None:
        """The lowest offset that is open; None when nothing is."""
        offsets = []
        if self.messages:
            offsets.append(self.messages[0].context.offset)
            if self.reordered:
                offsets += [received.context.offset for received in self.messages]
        offsets += self.window.offsets
        return min(offsets, default=None)

    def decode(self, received: Received, audio: bytes) -> list[Samples]:
        """Decode the audio of the message just begun into whole frames, one array per channel."""
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(audio))
            audio = audio[skipped:]
            self._skip_bytes -= skipped
        data = self._carry + audio if self._carry else audio
        frame_bytes = self._frame_bytes
        frames, rest = divmod(len(data), frame_bytes)
        self._carry = data[len(data) - rest :] if rest else b""
        samples = pcm.decode(data[: frames * frame_bytes], self.media.encoding)
        self._next_sample += frames
        received.hold_until = max(received.start_sample, self._next_sample + (1 if rest else 0))
        return pcm.split_channels(samples, self.media.width)

    def pass_over(self, samples: int) -> None:
        """The clock goes on by so many samples of which no audio came."""
        self._next_sample += samples

    def context_at(self, sample: int) -> MessageContext | None:
        """The context of the message that holds a sample, else of the newest before it."""
        found = None
        for received in self.messages:
            if found is not None and received.start_sample > sample:
                break
            found = received.context
        return found

    def anchor_of(self, received: Received) -> Anchor:
        return Anchor(
            received.start_sample,
            received.skip_bytes,
            received.expected_sequence,
            received.dropped_before,
        )

    def next_anchor(self) -> Anchor:
        """The anchor of the message that comes next.

        In a replay a half frame may lie before it though no message is open.
        """
        return Anchor(*self._place(), self.next_sequence, self.dropped_samples)

    def _place(self) -> tuple[int, int]:
        """The first whole frame that begins in what comes next, and the bytes before it."""
        if self._carry:
            return self._next_sample + 1, self._frame_bytes - len(self._carry)
        return self._next_sample, self._skip_bytes
