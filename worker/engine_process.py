"""An engine in a process of its own: what it is told, and how it answers.

It carries out one command at a time and answers each when nothing is left to do, so whoever asks
knows which request it was working on when it died.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from oasr.errors import OptionError
from worker.child_process import ChildProcess, leave_signals_to_the_worker

CRASHED: Final = "process"  # error stage of a request that kills the process
MOST_DEATHS: Final = 2  # of the process over one request
READY: Final = "ready"  # the first answer: the model is loaded

Samples = NDArray[np.float32]


def crashed(request_id: str) -> RequestOutput:
    """What is told of a request over which the process died once too often."""
    return RequestOutput(request_id, finished=True, finish_reason="error", error_stage=CRASHED)


class Engine(Protocol):
    """What is asked of an engine, in whatever process it runs."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""

    def add_streaming_request(
        self,
        request_id: str | None = None,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> str:
        """Open a stream."""

    def add_request(self, request: Request) -> str:
        """Queue a whole utterance."""

    def feed_chunk(
        self,
        request_id: str,
        samples: Samples,
        is_last: bool = False,
        keep_samples: int | None = None,
    ) -> None:
        """Append samples to a stream."""

    def abort_request(self, request_id: str) -> bool:
        """Drop a request; a later step reports it."""

    def runnable_samples(self) -> dict[str, int]:
        """The undecoded samples of each stream that can be advanced."""

    def step(self) -> list[RequestOutput]:
        """Do something; what came of it."""


@dataclass(frozen=True, slots=True)
class Open:
    """A stream begins."""

    request_id: str
    priority: int
    decoding: DecodingOptions | None
    tenant: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream goes on."""

    request_id: str
    samples: Samples
    is_last: bool
    keep_samples: int | None

    @property
    def size_bytes(self) -> int:
        return self.samples.nbytes


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole utterance, in order."""

    request_id: str
    samples: Samples

    @property
    def size_bytes(self) -> int:
        return self.samples.nbytes


@dataclass(frozen=True, slots=True)
class Transcribe:
    """A whole utterance, all parts of which were told."""

    request_id: str
    priority: int
    decoding: DecodingOptions
    tenant: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """A request is not wanted any more."""

    request_id: str
    size_bytes: int = 0


Command = Open | Feed | Part | Transcribe | Abort


class Child(Protocol):
    """A process at the other end of a connection."""

    connection: Connection

    @property
    def exit_status(self) -> int | None:
        """How it ended: negative for a signal; None while it runs."""

    def kill(self) -> None:
        """End it at once, and wait for that."""


class SpawnedChild(ChildProcess):
    """A process that serves an engine; `make_engine` is pickled."""

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        super().__init__("engine", serve, make_engine)


def serve(connection: Connection, make_engine: Callable[[], Engine]) -> None:
    """Carry out commands until the other end is closed; the process's main function."""
    leave_signals_to_the_worker()
    servant = _Servant(make_engine())
    try:
        connection.send(READY)
        while True:
            connection.send(servant.carry_out(connection.recv()))
    except (EOFError, OSError):  # the worker is gone
        return


class _Servant:
    """Tells an engine what the worker says."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._parts: dict[str, list[Samples]] = {}  # of utterances that are not complete

    def carry_out(self, command: Command) -> list[RequestOutput]:
        """All that comes of a command."""
        try:
            self._tell(command)
        except OptionError:
            return [_refused(command.request_id)]
        except KeyError:  # of a stream that failed meanwhile
            return []
        outputs: list[RequestOutput] = []
        while self._engine.has_work:
            outputs += self._engine.step()
        return outputs

    def _tell(self, command: Command) -> None:
        request_id = command.request_id
        if isinstance(command, Feed):
            self._engine.feed_chunk(
                request_id, command.samples, command.is_last, command.keep_samples
            )
        elif isinstance(command, Open):
            self._engine.add_streaming_request(
                request_id, command.priority, command.decoding, command.tenant
            )
        elif isinstance(command, Part):
            self._parts.setdefault(request_id, []).append(command.samples)
        elif isinstance(command, Transcribe):
            audio = np.concatenate(self._parts.pop(request_id))
            request = Request(
                audio, request_id, priority=command.priority, decoding=command.decoding
            )
            request.tenant = command.tenant
            self._engine.add_request(request)
        else:
            self._parts.pop(request_id, None)
            self._engine.abort_request(request_id)


def _refused(request_id: str) -> RequestOutput:
    return RequestOutput(request_id, finished=True, finish_reason="error", error_stage="options")
