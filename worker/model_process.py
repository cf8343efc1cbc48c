"""A model in a process of its own: its main function, what it is told and what it answers.

Unlike the child of `worker.engine_process` it takes all that comes into one engine, so that the
scheduler orders it and utterances share a batch. It serves whole utterances alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oasr.decoding.options import DecodingOptions
from oasr.engine.engine import ASREngine
from oasr.engine.family import Capabilities
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.errors import ModelError, OptionError
from oasr.models.registry import ModelInfo
from worker.child_process import ChildProcess, leave_signals_to_the_worker

MODEL_RATE: Final = 16_000
_WARM_UP_S: Final = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """What the process may take from the worker's live calls."""

    nice: int = 0
    cpus: tuple[int, ...] = ()  # empty: all of the worker

    def apply(self) -> None:
        """Hold this thread to it, and those that it starts; ModelError for cores not there."""
        os.nice(self.nice)
        if self.cpus:
            try:
                os.sched_setaffinity(0, self.cpus)
            except OSError as error:
                raise ModelError(f"cpus {list(self.cpus)}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Utterance:
    """A whole utterance to be decoded, 1-D float32 at 16 kHz."""

    request_id: str
    audio: NDArray[np.float32]
    priority: int
    decoding: DecodingOptions
    tenant: str

    def request(self) -> Request:
        """The engine's name for it."""
        request = Request(
            self.audio, self.request_id, priority=self.priority, decoding=self.decoding
        )
        request.tenant = self.tenant
        return request


@dataclass(frozen=True, slots=True)
class Forget:
    """An utterance is not wanted any more."""

    request_id: str


Told = Utterance | Forget


@dataclass(frozen=True, slots=True)
class Description:
    """The first answer: what admission has to know of the model."""

    info: ModelInfo
    capabilities: Capabilities
    check: Callable[[DecodingOptions], None]


@dataclass(frozen=True, slots=True)
class Unusable:
    """The first answer of a process that can never serve the model."""

    message: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """What came of a step."""

    outputs: list[RequestOutput]
    stats: StepStats


Answer = Description | Unusable | Stepped


class ModelProcess(ChildProcess):
    """A process that serves a model; `make_engine` is pickled."""

    def __init__(self, make_engine: Callable[[], ASREngine], budget: Budget) -> None:
        super().__init__("model", serve, make_engine, budget)
        self._outgoing: SimpleQueue[Told | None] = SimpleQueue()
        # A pipe that is full would make the loop wait for a process that is busy.
        threading.Thread(target=self._send_all, name="to-model", daemon=True).start()

    def tell(self, told: Told) -> None:
        """Send it in turn, without waiting."""
        self._outgoing.put(told)

    def kill(self) -> None:
        """End it at once, and wait for that."""
        self._outgoing.put(None)
        super().kill()

    def _send_all(self) -> None:
        while (told := self._outgoing.get()) is not None:
            try:
                self.connection.send(told)
            # it has died, which whoever reads its answers finds out
            except (OSError, ValueError, TypeError):
                return


def serve(connection: Connection, make_engine: Callable[[], ASREngine], budget: Budget) -> None:
    """Decode what comes until the other end is closed; the process's main function."""
    leave_signals_to_the_worker()
    try:
        budget.apply()
        engine = make_engine()
    except (ModelError, OptionError) as error:
        connection.send(Unusable(str(error)))
        return
    engine.transcribe([np.zeros(_WARM_UP_S * MODEL_RATE, dtype=np.float32)])
    connection.send(Description(engine.model_info, engine.capabilities, engine.portable_check))
    inbox: SimpleQueue[Told] = SimpleQueue()
    threading.Thread(target=_receive_all, args=(connection, inbox), daemon=True).start()
    while True:
        refused = _take(engine, inbox)
        if engine.has_work:
            outputs = engine.step()
            connection.send(Stepped(refused + outputs, engine.stats))
        elif refused:
            connection.send(Stepped(refused, StepStats()))


def _receive_all(connection: Connection, inbox: SimpleQueue[Told]) -> None:
    while True:
        try:
            inbox.put(connection.recv())
        except (EOFError, OSError):  # the worker is gone: nobody wants the rest of the batch
            os._exit(0)


def _take(engine: ASREngine, inbox: SimpleQueue[Told]) -> list[RequestOutput]:
    """Hand over what has come, waiting for it if there is nothing else to do."""
    refused = []
    while not (engine.has_work and inbox.empty()):
        told = inbox.get()
        if isinstance(told, Forget):
            engine.abort_request(told.request_id)
            continue
        try:
            engine.add_request(told.request())
        except OptionError:
            refused.append(
                RequestOutput(
                    told.request_id, finished=True, finish_reason="error", error_stage="options"
                )
            )
            break
    return refused
