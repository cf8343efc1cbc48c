"""The models of a worker as one recognizer: which serves what, and whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from oasr.engine.stats import StepStats
from worker.model_engine import ModelEngine
from worker.ports import Owner
from worker.recognizer import Recognizer

MARK: Final = "/"  # between the name of a model and the number of its request


@dataclass(frozen=True, slots=True)
class Step:
    """A step that a model has made."""

    model: str  # as the settings name it
    stats: StepStats
    is_ours: bool = True  # the loop made it, and waited for it


class Served(Protocol):
    """One model at work."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""

    @property
    def open_requests(self) -> int:
        """Requests that have not had their last output."""

    def step(self) -> StepStats | None:
        """One step; what it did, None where the loop did not have to wait for it."""

    def of(self, owner: Owner, model: str | None = None) -> Recognizer:
        """Where the requests of a partition run now."""

    def holding(self, request_id: str) -> Recognizer:
        """Where a request was opened."""

    def held_s(self) -> dict[int, float]:
        """Seconds of live audio that is not decoded and could be, by partition."""

    def undecoded_age_s(self) -> float:
        """Age of the oldest live audio that waits for the engine; 0 where none does."""

    def close(self) -> None:
        """End all processes."""


class Apart:
    """A model in a process of its own: whoever asks, it runs there."""

    def __init__(self, engine: ModelEngine, now: Callable[[], float], prefix: str) -> None:
        self._engine = engine
        self._recognizer = Recognizer(engine, now, prefix)

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    @property
    def open_requests(self) -> int:
        return self._recognizer.open_requests

    def step(self) -> None:
        self._recognizer.step()

    def taken_stats(self) -> list[StepStats]:
        """What the process has done since the last time."""
        taken, self._engine.stats = self._engine.stats, []
        return taken

    def of(self, owner: Owner, model: str | None = None) -> Recognizer:
        del owner, model
        return self._recognizer

    def holding(self, request_id: str) -> Recognizer:
        del request_id
        return self._recognizer

    def held_s(self) -> dict[int, float]:
        return {}

    def undecoded_age_s(self) -> float:
        return 0.0

    def close(self) -> None:
        self._engine.close()


class Models:
    """All of them; the first is that of live calls, where those are read."""

    def __init__(self, served: Mapping[str, Served]) -> None:
        """`served` by name; ids of their requests begin with the name and `MARK`."""
        self._served = dict(served)
        self._first = next(iter(self._served))
        others = [name for name in self._served if name != self._first]
        self._apart = {n: s for n, s in self._served.items() if isinstance(s, Apart)}
        self._turns = deque(name for name in others if name not in self._apart)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""
        return any(served.has_work for served in self._served.values())

    @property
    def usual(self) -> Recognizer:
        """That of the first model, for who asks on behalf of no partition."""
        return self.holding(self._first + MARK)

    def open_requests(self) -> dict[str, int]:
        """Requests that have not had their last output, by model."""
        return {name: served.open_requests for name, served in self._served.items()}

    def step(self) -> list[Step]:
        """A step of the first model, then of one other in this process, in turn.

        So no model keeps the first waiting for more than one forward. Processes of their own are
        only listened to.
        """
        made = []
        if self._first not in self._apart:
            made += self._step_of(self._first)
        for _ in range(len(self._turns)):
            name = self._turns[0]
            self._turns.rotate(-1)
            if self._served[name].has_work:
                made += self._step_of(name)
                break
        for name, apart in self._apart.items():
            apart.step()
            made += [Step(name, stats, is_ours=False) for stats in apart.taken_stats()]
        return made

    def of(self, owner: Owner, model: str | None = None) -> Recognizer:
        """Where the requests of a partition to a model run now."""
        return self._served[self._first if model is None else model].of(owner)

    def holding(self, request_id: str) -> Recognizer:
        """Where a request was opened."""
        return self._served[request_id.partition(MARK)[0]].holding(request_id)

    def held_s(self) -> dict[int, float]:
        """Seconds of live audio that is not decoded and could be, by partition."""
        held: dict[int, float] = {}
        for served in self._served.values():
            for partition, seconds in served.held_s().items():
                held[partition] = held.get(partition, 0.0) + seconds
        return held

    def undecoded_age_s(self) -> float:
        """Age of the oldest live audio that waits for an engine; 0 where none does."""
        return max(served.undecoded_age_s() for served in self._served.values())

    def close(self) -> None:
        """End all child processes."""
        for served in self._served.values():
            served.close()

    def _step_of(self, name: str) -> list[Step]:
        stats = self._served[name].step()
        return [] if stats is None else [Step(name, stats)]
