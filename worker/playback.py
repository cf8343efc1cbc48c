"""Plays recorded calls into Kafka as a telephone system would: many at once, each at its own pace.

The pace is open-loop: a message is due when its last sample would have been spoken, whatever
became of the messages before it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from worker.call_files import CallAudio
from worker.messages import Headers

MESSAGES_PER_PUMP = 500


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message of a call, `due_s` seconds after the call's beginning."""

    session_id: str
    due_s: float
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class CallPlan:
    """How one call becomes messages."""

    session_id: str
    audio: CallAudio
    chunk_ms: int = 100
    separate_channels: bool = False
    options: str | None = None  # JSON; every message restates it

    def messages(self) -> Iterator[PlannedMessage]:
        """Every message of the call in order, the `end` event last.

        Separate channels become mono messages, each channel with a sequence of its own.
        """
        audio = self.audio
        step = max(1, audio.sample_rate * self.chunk_ms // 1000)
        channels: list[int | None] = (
            list(range(audio.channels)) if self.separate_channels else [None]
        )
        sequence = 0
        for start in range(0, audio.frames, step):
            due_s = min(start + step, audio.frames) / audio.sample_rate
            for channel in channels:
                piece = audio.piece(start, step, channel)
                headers = self._audio_headers(start, sequence, channel)
                yield PlannedMessage(self.session_id, due_s, piece, headers)
            sequence += 1
        yield self.end(audio.duration_s, None if self.separate_channels else sequence)

    def end(self, due_s: float, sequence: int | None) -> PlannedMessage:
        """The event that ends the call."""
        headers = [("event", b"end")]
        if self.audio.roles:
            headers.append(("roles", ",".join(self.audio.roles).encode()))
            headers.append(("channels", b"%d" % self.audio.channels))
        if self.options is not None:
            headers.append(("options", self.options.encode()))
        if sequence is not None:
            headers.append(("sequence", b"%d" % sequence))
        return PlannedMessage(self.session_id, due_s, None, tuple(headers))

    def _audio_headers(self, start_frame: int, sequence: int, channel: int | None) -> Headers:
        audio = self.audio
        headers = {
            "event": "audio",
            "encoding": audio.encoding.value,
            "sample_rate": str(audio.sample_rate),
            "channels": str(audio.channels),
            "sequence": str(sequence),
            "position_ms": str(start_frame * 1000 // audio.sample_rate),
        }
        if audio.roles:
            headers["roles"] = ",".join(audio.roles)
        if channel is not None:
            headers["channel"] = str(channel)
        if self.options is not None:
            headers["options"] = self.options
        return tuple((name, text.encode()) for name, text in headers.items())


class Player:
    """Sends the messages of many calls when they are due; one thread, no waiting inside."""

    def __init__(
        self,
        send: Callable[[PlannedMessage], None],
        now_s: Callable[[], float],
        speed: float = 1.0,
    ) -> None:
        """`speed` 2 plays twice as fast as the call was spoken, 0 as fast as messages are taken."""
        self._send = send
        self._now_s = now_s
        self._speed = speed
        self._order = itertools.count()
        self._due: list[tuple[float, int, _Playing]] = []
        self.sent = 0
        self.finished = 0
        self.latest_s = 0.0  # the longest that a message was sent after it was due

    def add(self, plan: CallPlan, start_s: float) -> None:
        """Plays a call from `start_s` of the clock on."""
        messages = plan.messages()
        # there is always one: the end of an empty call
        self._queue(_Playing(plan, messages, next(messages), start_s))

    @property
    def playing(self) -> int:
        """Calls that have messages left."""
        return len(self._due)

    def pump(self) -> float | None:
        """Sends what is due; seconds until the next message, None when everything was played.

        At most 500 messages go out in one call, so that the caller stays responsive.
        """
        for _ in range(MESSAGES_PER_PUMP):
            if not self._due:
                return None
            wait_s = self._due[0][0] - self._now_s()
            if wait_s > 0:
                return wait_s
            _, _, playing = heapq.heappop(self._due)
            self.latest_s = max(self.latest_s, -wait_s)
            self._send_next(playing)
            following = next(playing.messages, None)
            if following is None:
                self.finished += 1
            else:
                playing.upcoming = following
                self._queue(playing)
        return 0.0

    def stop(self) -> int:
        """Ends every call that has begun with an `end` event, and returns their number."""
        begun = [playing for _, _, playing in self._due if playing.sent]
        self._due.clear()
        for playing in begun:
            sequence = None if playing.plan.separate_channels else playing.sent
            self._send(playing.plan.end(0.0, sequence))
            self.sent += 1
        return len(begun)

    def _send_next(self, playing: _Playing) -> None:
        self._send(playing.upcoming)
        self.sent += 1
        playing.sent += 1

    def _queue(self, playing: _Playing) -> None:
        offset_s = playing.upcoming.due_s / self._speed if self._speed else 0.0
        heapq.heappush(self._due, (playing.start_s + offset_s, next(self._order), playing))


@dataclass(slots=True)
class _Playing:
    plan: CallPlan
    messages: Iterator[PlannedMessage]
    upcoming: PlannedMessage
    start_s: float
    sent: int = 0
