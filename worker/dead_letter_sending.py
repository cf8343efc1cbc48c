"""The way of dead letters back: paced, in order, and with a true account wherever it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from worker.connections import Sender
from worker.dead_letter_read import Letter
from worker.dead_letter_replay import Handled, NotReplayable, Outgoing

_FLUSH_S: Final = 30.0
# The broker will never take this message, but it may take the next. After any other error the
# next one would meet the same.
_OF_THE_MESSAGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD)

Report = Callable[[KafkaError | None], None]


class Way(Protocol):
    """Where messages go; each is reported once, with its error if there was one."""

    def send(self, message: Outgoing, letter: Letter, report: Report) -> None:
        """Take a message."""

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""

    def finish(self) -> None:
        """Wait for the reports that are due."""


class Back:
    """The way to the topics, each message to the partition of its key."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._known: set[str] = set()

    def send(self, message: Outgoing, letter: Letter, report: Report) -> None:
        """Queues a message; raises TopicMissing, KafkaException."""
        del letter
        if message.topic not in self._known:
            self._sender.check(message.topic)
            self._known.add(message.topic)

        def delivered(error: KafkaError | None, _message: Message) -> None:
            report(error)

        try:
            self._sender.send(message.topic, message.key, message.value, message.headers, delivered)
        except KafkaException as error:
            report(error.args[0])
        self._sender.poll(0)

    def wait(self, seconds: float) -> None:
        """Serves reports meanwhile."""
        self._sender.poll(seconds)

    def finish(self) -> None:
        """Waits for the brokers, at most half a minute."""
        self._sender.finish(_FLUSH_S)


class Shown:
    """No way at all: what would go is a line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def send(self, message: Outgoing, letter: Letter, report: Report) -> None:
        """Says what would go where."""
        size = "null" if message.value is None else f"{len(message.value)} bytes"
        key = letter.shown_key or "no key"
        self._say(f"{letter.place} {letter.code} -> {message.topic}: {key}, {size}")
        report(None)

    def wait(self, seconds: float) -> None:
        """Nothing goes, so nothing waits."""

    def finish(self) -> None:
        """Nothing is due."""


class Replay:
    """Sends letters again until there are no more, or one fails for a reason that others share."""

    def __init__(
        self,
        way: Way,
        handled: Handled,
        say: Callable[[str], None],
        per_second: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` gets a line about each letter that is not sent again."""
        self._way, self._handled, self._say = way, handled, say
        self._gap_s = 0.0 if per_second is None else 1 / per_second
        self._now = now
        self._next_at = now()
        self._sent = 0
        self.replayed = 0  # acknowledged by the broker
        self.refused = 0  # by us
        self.failed = 0  # not taken by the broker
        self.stopped: str | None = None

    @property
    def unconfirmed(self) -> int:
        """Messages that nothing is known of: they may be on their topics or not."""
        return self._sent - self.replayed - self.failed

    def run(self, letters: Iterable[Letter], outgoing: Callable[[Letter], Outgoing]) -> None:
        """Takes the letters in their order; `outgoing` raises NotReplayable."""
        for letter in letters:
            try:
                message = outgoing(letter)
            except NotReplayable as reason:
                self.refused += 1
                self._say(f"{letter.place} {letter.code}: not replayed: {reason}")
                self._handled.done(letter.partition, letter.offset)
                continue
            self._pace()
            self._sent += 1
            self._way.send(message, letter, self._report(letter))
            if self.stopped is not None:
                return

    def finish(self) -> None:
        """Waits for what is on its way; to be called however `run` ended."""
        self._way.finish()

    def _pace(self) -> None:
        while (left := self._next_at - self._now()) > 0:
            self._way.wait(left)
        self._next_at = max(self._next_at, self._now()) + self._gap_s

    def _report(self, letter: Letter) -> Report:
        def report(error: KafkaError | None) -> None:
            if error is None:
                self.replayed += 1
            else:
                self.failed += 1
                self._say(f"{letter.place} {letter.code}: not taken: {error.str()}")
                if error.code() not in _OF_THE_MESSAGE:
                    self.stopped = error.str()
                    return
            self._handled.done(letter.partition, letter.offset)

        return report
