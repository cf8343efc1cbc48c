"""The engine's interface for a model in a process of its own, which may die.

Utterances outlive the process: they are told again to the next one. Those that a process held when
it died are then decoded one at a time, so that the one which kills it is found: an utterance over
which two processes died ends as failed, with the stage `CRASHED`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.errors import ModelError, OptionError
from worker.engine_process import MOST_DEATHS, Child, Samples, crashed
from worker.isolated_engine import MOST_FAILED_STARTS, START_LIMIT_S
from worker.model_process import Answer, Description, Forget, Told, Unusable, Utterance
from worker.producer import FatalClientError

logger = logging.getLogger(__name__)

STEP_LIMIT_S: Final = 600.0


class Process(Child, Protocol):
    """A process that serves a model."""

    def tell(self, told: Told) -> None:
        """Send it in turn, without waiting."""


@dataclass(slots=True)
class _Asked:
    """An open utterance."""

    utterance: Utterance
    is_told: bool = False  # to the process that runs
    deaths: int = 0


class ModelEngine:
    """Utterances in, outputs out."""

    def __init__(
        self,
        start: Callable[[], Process],
        now: Callable[[], float],
        on_death: Callable[[], None] = lambda: None,
        step_limit_s: float = STEP_LIMIT_S,
    ) -> None:
        self._start = start
        self._now = now
        self._on_death = on_death
        self._step_limit_s = step_limit_s
        self._process: Process | None = None
        self._description: Description | None = None  # of the process that runs
        self._failed_starts = 0
        self._waiting_since = 0.0  # for the answer that is due
        self._asked: dict[str, _Asked] = {}
        self._has_untold = False
        self.stats: list[StepStats] = []  # of the steps since they were last taken

    def begin(self) -> Description:
        """Start the process and wait until it knows its model; ModelError if it cannot."""
        self._ensure_process()
        while self._process is not None and self._description is None:
            self._process.connection.poll(START_LIMIT_S)
            self._read()
        if self._description is None:
            raise ModelError("the model's process ends before the model is loaded")
        return self._description

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""
        if self._process is None:
            return bool(self._asked)
        is_ready = self._description is not None
        return (is_ready and self._may_tell) or self._is_late or self._process.connection.poll(0)

    def add_streaming_request(
        self,
        request_id: str | None = None,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> str:
        """Refused: admission sends no live calls here."""
        del request_id, priority, decoding, tenant
        raise OptionError("streaming", "a model in a process of its own reads recordings alone")

    def feed_chunk(
        self,
        request_id: str,
        samples: Samples,
        is_last: bool = False,
        keep_samples: int | None = None,
    ) -> None:
        """There are no streams."""
        del samples, is_last, keep_samples
        raise KeyError(request_id)

    def runnable_samples(self) -> dict[str, int]:
        """There are no streams."""
        return {}

    def add_request(self, request: Request) -> str:
        """Queue a whole utterance."""
        if request.audio is None:
            raise ValueError("an offline request needs its audio")
        utterance = Utterance(
            request.request_id, request.audio, request.priority, request.decoding, request.tenant
        )
        self._asked[request.request_id] = _Asked(utterance)
        self._has_untold = True
        return request.request_id

    def abort_request(self, request_id: str) -> bool:
        """Forget an utterance; False if it is not open."""
        asked = self._asked.pop(request_id, None)
        if asked is None:
            return False
        if asked.is_told and self._process is not None:
            self._process.tell(Forget(request_id))
        return True

    def step(self) -> list[RequestOutput]:
        """Take the answers that are there and hand on what is new.

        FatalClientError if the process dies again and again before it knows its model.
        """
        if self._process is None and not self._asked:
            return []
        self._ensure_process()
        try:
            outputs = self._read()
        except ModelError as error:  # it was loaded once
            raise FatalClientError(str(error)) from error
        if self._description is not None:
            self._tell()
        return outputs

    def close(self) -> None:
        """End the process; what is open is forgotten."""
        self._asked.clear()
        self._end()

    # -- inside -------------------------------------------------------------------------------

    def _ensure_process(self) -> None:
        if self._process is None:
            self._process = self._start()
            self._waiting_since = self._now()
            self._has_untold = bool(self._asked)

    @property
    def _suspects(self) -> list[_Asked]:
        return [asked for asked in self._asked.values() if asked.deaths]

    @property
    def _may_tell(self) -> bool:
        if not self._has_untold:
            return False
        return not (self._suspects and any(asked.is_told for asked in self._asked.values()))

    def _tell(self) -> None:
        """What is new goes out at once, but suspects one at a time, before all others."""
        if not self._may_tell:
            return
        assert self._process is not None
        suspects = self._suspects
        if not any(asked.is_told for asked in self._asked.values()):
            self._waiting_since = self._now()
        for asked in suspects[:1] or self._asked.values():
            if not asked.is_told:
                asked.is_told = True
                self._process.tell(asked.utterance)
        self._has_untold = any(not asked.is_told for asked in self._asked.values())

    def _read(self) -> list[RequestOutput]:
        process = self._process
        assert process is not None
        outputs: list[RequestOutput] = []
        try:
            while process.connection.poll(0):
                outputs += self._heard(process.connection.recv())
        except (EOFError, OSError):
            return outputs + self._died(hung=False)
        return outputs + self._died(hung=True) if self._is_late else outputs

    def _heard(self, answer: Answer) -> list[RequestOutput]:
        self._waiting_since = self._now()
        if isinstance(answer, Unusable):
            raise ModelError(answer.message)
        if isinstance(answer, Description):
            self._description, self._failed_starts = answer, 0
            return []
        self.stats.append(answer.stats)
        wanted = [output for output in answer.outputs if output.request_id in self._asked]
        for output in wanted:
            if output.finished:
                del self._asked[output.request_id]
        return wanted

    @property
    def _is_late(self) -> bool:
        if self._process is None:
            return False
        waited_s = self._now() - self._waiting_since
        if self._description is None:
            return waited_s > START_LIMIT_S
        is_busy = any(asked.is_told for asked in self._asked.values())
        return is_busy and waited_s > self._step_limit_s

    def _died(self, hung: bool) -> list[RequestOutput]:
        was_ready = self._description is not None
        status = self._end()
        how = "did not answer" if hung else f"ended with status {status}"
        logger.error("the model's process %s and is replaced", how)
        self._on_death()
        if not was_ready:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                raise FatalClientError(f"the model's process does not start: it {how}")
        return [self._blamed(asked) for asked in self._blame()]

    def _blame(self) -> list[_Asked]:
        """Those over which it died once too often; all begin again."""
        found = []
        for asked in self._asked.values():
            if asked.is_told:
                asked.is_told = False
                asked.deaths += 1
                if asked.deaths >= MOST_DEATHS:
                    found.append(asked)
        return found

    def _blamed(self, asked: _Asked) -> RequestOutput:
        request_id = asked.utterance.request_id
        del self._asked[request_id]
        return crashed(request_id)

    def _end(self) -> int | None:
        process, self._process = self._process, None
        self._description = None
        if process is None:
            return None
        process.kill()
        return process.exit_status
