"""The engine in this process, and for partitions whose owners keep dying one in a child process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from oasr.engine.stats import StepStats
from worker.commits import ISOLATED_FROM
from worker.isolated_engine import IsolatedEngine
from worker.ports import Owner
from worker.recognizer import Recognizer
from worker.segments import Segment


def load_engine(config: EngineConfig, torch_threads: int) -> ASREngine:
    """The engine of a process: what a child calls first."""
    torch.set_num_threads(torch_threads)
    return ASREngine(config)


def is_isolated(owner: Owner) -> bool:
    """Whether what the partition asks for now may not run in this process."""
    return owner.start_counter >= ISOLATED_FROM


class Recognizers:
    """Both as one; the ids of the isolated one's requests have a prefix."""

    PREFIX: Final = "isolated-"

    def __init__(
        self,
        engine: ASREngine,
        child: IsolatedEngine,
        now: Callable[[], float],
        prefix: str = "",
    ) -> None:
        """`engine` is the one in this process; ids of all requests begin with `prefix`."""
        self._engine = engine
        self._child = child
        self._isolated_prefix = prefix + self.PREFIX
        self.direct = Recognizer(engine, now, prefix)
        self._isolated = Recognizer(child, now, self._isolated_prefix)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something now."""
        return self.direct.has_work or self._child.has_work

    def step(self) -> StepStats | None:
        """One step of each; what the engine in this process did, None if it had nothing to do."""
        self._isolated.step()
        if not self.direct.has_work:
            return None
        self.direct.step()
        return self._engine.stats

    @property
    def open_requests(self) -> int:
        """Requests that have not had their last output."""
        return self.direct.open_requests + self._isolated.open_requests

    def of(self, owner: Owner, model: str | None = None) -> Recognizer:
        """Where the requests of a partition run now."""
        del model  # there is one
        return self._isolated if is_isolated(owner) else self.direct

    def holding(self, request_id: str) -> Recognizer:
        """Where a request was opened."""
        return self._isolated if request_id.startswith(self._isolated_prefix) else self.direct

    def held_s(self) -> dict[int, float]:
        """Seconds of live audio that is not decoded and could be, by partition."""
        held = self.direct.held_s()
        for partition, seconds in self._isolated.held_s().items():
            held[partition] = held.get(partition, 0.0) + seconds
        return held

    def undecoded_age_s(self) -> float:
        """Age of the oldest live audio that waits for the engine; 0 where none does."""
        return max(self.direct.undecoded_age_s(), self._isolated.undecoded_age_s())

    def close(self) -> None:
        """End the child process."""
        self._child.close()


class Choice(Protocol):
    """Who knows where requests run."""

    def of(self, owner: Owner, model: str | None = None) -> Recognizer:
        """Where the requests of a partition to a model run now."""

    def holding(self, request_id: str) -> Recognizer:
        """Where a request was opened."""


@dataclass(frozen=True, slots=True)
class PartitionSpeech:
    """The recognizers for the segments of one partition."""

    recognizers: Choice
    owner: Owner

    def open(self, segment: Segment, priority: int) -> str:
        recognizer = self.recognizers.of(self.owner, segment.info.context.options.model)
        return recognizer.open(segment, priority, self.owner.number)

    def feed(
        self, request_id: str, samples: NDArray[np.float32], keep_samples: int | None, last: bool
    ) -> None:
        self.recognizers.holding(request_id).feed(request_id, samples, keep_samples, last)

    def drop(self, request_id: str) -> None:
        self.recognizers.holding(request_id).drop(request_id)
