"""The engine's interface, carried out in a child process that may die.

Requests outlive the process: what an open one was told is kept and told again to the next process.
A request during which the process died twice ends as failed, with the stage `CRASHED`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from worker.engine_process import (
    MOST_DEATHS,
    READY,
    Abort,
    Child,
    Command,
    Feed,
    Open,
    Part,
    Samples,
    Transcribe,
    crashed,
)
from worker.producer import FatalClientError

logger = logging.getLogger(__name__)

MOST_FAILED_STARTS: Final = 3  # in a row; then the worker cannot go on
START_LIMIT_S: Final = 300.0  # of loading the model
ANSWER_LIMIT_S: Final = 60.0  # of one command: a process that takes longer hangs
# What is on its way fits in the pipe, so that sending never waits for the process.
MOST_ON_THE_WAY: Final = 16
_MOST_BYTES_ON_THE_WAY: Final = 64 * 1024
PIECE_SAMPLES: Final = 8_000  # 32 KB


@dataclass(slots=True)
class _Asked:
    """An open request: all that it was told."""

    commands: list[Command] = field(default_factory=list)
    deaths: int = 0


class IsolatedEngine:
    """Requests in, outputs out; the process starts with the first of them."""

    def __init__(
        self,
        start: Callable[[], Child],
        now: Callable[[], float],
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._now = now
        self._on_death = on_death
        self._child: Child | None = None
        self._is_ready = False
        self._failed_starts = 0
        self._waiting_since = 0.0  # for the answer that is due
        self._requests: dict[str, _Asked] = {}
        self._queue: deque[Command] = deque()  # not sent
        self._sent: deque[Command] = deque()  # not answered
        self._bytes_sent = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._child is not None

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""
        if self._child is None:
            return bool(self._queue)
        may_send = bool(self._queue) and self._is_ready and self._has_room(self._queue[0])
        return may_send or self._is_late or self._child.connection.poll(0)

    def add_streaming_request(
        self,
        request_id: str | None = None,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> str:
        """Open a stream under an id that no open request has."""
        if request_id is None:
            raise ValueError("an isolated request needs an id")
        self._ask(Open(request_id, priority, decoding, tenant))
        return request_id

    def add_request(self, request: Request) -> str:
        """Queue a whole utterance."""
        if request.audio is None:
            raise ValueError("an offline request needs its audio")
        for piece in _pieces(request.audio):
            self._ask(Part(request.request_id, piece))
        self._ask(
            Transcribe(request.request_id, request.priority, request.decoding, request.tenant)
        )
        return request.request_id

    def feed_chunk(
        self,
        request_id: str,
        samples: Samples,
        is_last: bool = False,
        keep_samples: int | None = None,
    ) -> None:
        """Append samples; those of a request that has ended are nobody's."""
        if request_id not in self._requests:
            return
        *pieces, last = _pieces(samples)
        for piece in pieces:
            self._ask(Feed(request_id, piece, False, None))
        self._ask(Feed(request_id, last, is_last, keep_samples))

    def abort_request(self, request_id: str) -> bool:
        """Forget a request; False if it is not open."""
        if self._requests.pop(request_id, None) is None:
            return False
        self._queue = deque(c for c in self._queue if c.request_id != request_id)
        self._queue.append(Abort(request_id))
        return True

    def runnable_samples(self) -> dict[str, int]:
        """16 kHz samples of each stream that the process has not answered for."""
        found: dict[str, int] = {}
        for command in (*self._sent, *self._queue):
            if isinstance(command, Feed) and command.request_id in self._requests:
                found[command.request_id] = found.get(command.request_id, 0) + len(command.samples)
        return found

    def step(self) -> list[RequestOutput]:
        """Take the answers that are there and send what there is room for.

        FatalClientError if the process dies again and again before it is ready.
        """
        if self._child is None:
            if not self._queue:
                return []
            self._child, self._is_ready = self._start(), False
            self._waiting_since = self._now()
        outputs = self._answers()
        if self._child is not None and self._is_ready:
            self._send()
        return outputs

    def close(self) -> None:
        """End the process; what is open is forgotten."""
        self._requests.clear()
        self._queue.clear()
        self._end()

    # -- inside -------------------------------------------------------------------------------

    def _ask(self, command: Command) -> None:
        self._requests.setdefault(command.request_id, _Asked()).commands.append(command)
        self._queue.append(command)

    def _has_room(self, command: Command) -> bool:
        size_bytes = self._bytes_sent + command.size_bytes
        return not self._sent or (
            len(self._sent) < MOST_ON_THE_WAY and size_bytes <= _MOST_BYTES_ON_THE_WAY
        )

    def _send(self) -> None:
        assert self._child is not None
        try:
            while self._queue and self._has_room(self._queue[0]):
                command = self._queue[0]
                if not self._sent:
                    self._waiting_since = self._now()
                self._child.connection.send(command)
                self._bytes_sent += command.size_bytes
                self._sent.append(self._queue.popleft())
        except OSError:  # it has died; the next step finds out
            return

    def _answers(self) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        child = self._child
        assert child is not None
        try:
            while child.connection.poll(0):
                answer = child.connection.recv()
                self._waiting_since = self._now()
                if answer == READY:
                    self._is_ready, self._failed_starts = True, 0
                else:
                    outputs += self._answered(answer)
        except (EOFError, OSError):
            return outputs + self._died(hung=False)
        return outputs + self._died(hung=True) if self._is_late else outputs

    @property
    def _is_late(self) -> bool:
        waited_s = self._now() - self._waiting_since
        if self._is_ready:
            return bool(self._sent) and waited_s > ANSWER_LIMIT_S
        return self._child is not None and waited_s > START_LIMIT_S

    def _answered(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        self._bytes_sent -= self._sent.popleft().size_bytes
        wanted = [output for output in outputs if output.request_id in self._requests]
        for output in wanted:
            if output.finished:
                del self._requests[output.request_id]
        return wanted

    def _died(self, hung: bool) -> list[RequestOutput]:
        """The process is gone: blame what it was working on, begin again with the others."""
        blamed = self._sent[0].request_id if self._sent else None
        was_ready = self._is_ready
        status = self._end()
        how = "did not answer" if hung else f"ended with status {status}"
        logger.error("the engine's process %s and is replaced", how)
        self._on_death()
        if not was_ready:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                raise FatalClientError(f"the engine's process does not start: it {how}")
        outputs = [] if blamed is None else self._blame(blamed)
        self._queue = deque(c for asked in self._requests.values() for c in asked.commands)
        return outputs

    def _blame(self, request_id: str) -> list[RequestOutput]:
        asked = self._requests.get(request_id)
        if asked is None:
            return []
        asked.deaths += 1
        if asked.deaths < MOST_DEATHS:
            return []
        del self._requests[request_id]
        return [crashed(request_id)]

    def _end(self) -> int | None:
        child, self._child = self._child, None
        self._sent.clear()
        self._bytes_sent = 0
        self._is_ready = False
        if child is None:
            return None
        child.kill()
        return child.exit_status


def _pieces(samples: Samples) -> list[Samples]:
    """At least one piece, each as short as the pipe wants it."""
    return np.split(samples, range(PIECE_SAMPLES, len(samples), PIECE_SAMPLES))
