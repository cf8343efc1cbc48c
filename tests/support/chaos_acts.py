"""What is done to workers and brokers while calls play: when, to whom, and what follows."""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from tests.support.kafka import WorkerProcess
from worker.devkafka_node import Node

POSTPONED_S = 0.3
READY_S = 300.0
LEAVE_S = 60.0
RESTART_S = 1.0


class Act(Enum):
    """A disturbance."""

    KILL = "worker killed"
    FREEZE = "worker frozen"
    LEAVE = "worker left in order"
    NODE_KILL = "broker killed"
    NODE_FREEZE = "broker frozen"


@dataclass(frozen=True, slots=True)
class Dose:
    """How often each is done within so many seconds, and how long what follows takes."""

    times: dict[Act, int]
    within_s: float
    away_s: tuple[float, float] = (0.2, 3.0)  # until a worker is started again
    frozen_s: tuple[float, float] = (0.5, 9.0)  # below and above the session time-out
    node_away_s: tuple[float, float] = (1.0, 5.0)


@dataclass(slots=True)
class Fellow:
    """A worker and what is known of it."""

    process: WorkerProcess
    frozen: bool = False
    leaving: bool = False
    away: bool = False  # ended, a start is due
    lifetimes: int = 0

    @property
    def name(self) -> str:
        return self.process.log_path.stem

    def start(self) -> None:
        self.process.start()
        self.away = self.frozen = self.leaving = False
        self.lifetimes += 1

    @property
    def working(self) -> bool:
        """Whether it is in the group, so that a disturbance hits something."""
        if self.away or self.frozen or self.leaving or not self.process.running:
            return False
        return self.process.http("/readyz")[0] == 200


class Crew:
    """Workers that are started again when they end."""

    def __init__(self, fellows: Sequence[Fellow], say: Callable[[str], object]) -> None:
        self.fellows = fellows
        self.done: Counter[Act] = Counter()
        self.ended_alone = 0  # workers that ended though nobody touched them
        self.stayed: list[str] = []  # who had to be killed at the end
        self._say = say
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def begin(self) -> None:
        """Start all workers; returns when they work."""
        for fellow in self.fellows:
            fellow.start()
        for fellow in self.fellows:
            fellow.process.await_ready(READY_S)

    @property
    def idle(self) -> bool:
        """Whether everything was done and everybody is back."""
        return not self._due

    def tick(self) -> None:
        """Do what is due, and start again who ended by himself."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        for fellow in self.fellows:
            if fellow.away or fellow.process.running:
                continue
            if not fellow.leaving:
                self.ended_alone += 1
                self._say(f"{fellow.name} ended by itself: {fellow.process.process.returncode}")
            self._bring_back(fellow, RESTART_S)

    def end(self, within_s: float = LEAVE_S) -> None:
        """End all workers in order, the frozen ones too; who stays longer is killed and told."""
        self._due.clear()
        for fellow in self.fellows:
            if fellow.process.running:
                fellow.process.process.send_signal(signal.SIGTERM)
                fellow.process.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + within_s
        for fellow in self.fellows:
            if fellow.process.running:
                self._see_off(fellow, deadline - time.monotonic())

    def _see_off(self, fellow: Fellow, within_s: float) -> None:
        try:
            fellow.process.process.wait(max(0.0, within_s))
        except subprocess.TimeoutExpired:
            fellow.process.kill()
            self.stayed.append(fellow.name)
            self._say(f"{fellow.name} did not leave on SIGTERM: killed")

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), what))

    def _bring_back(self, fellow: Fellow, seconds: float) -> None:
        fellow.away = True
        self._after(seconds, fellow.start)


class Script(Crew):
    """Does what is written down: a generator that yields how long to wait before it goes on."""

    def __init__(
        self, fellows: Sequence[Fellow], script: Iterator[float], say: Callable[[str], object]
    ) -> None:
        super().__init__(fellows, say)
        self._script = script

    def begin(self) -> None:
        super().begin()
        self._go_on()

    def _go_on(self) -> None:
        wait_s = next(self._script, None)
        if wait_s is not None:
            self._after(wait_s, self._go_on)


class Monkey(Crew):
    """Does the acts at moments chosen by a seed and brings back what it took away."""

    def __init__(
        self,
        fellows: Sequence[Fellow],
        nodes: Sequence[Node],
        rng: random.Random,
        dose: Dose,
        say: Callable[[str], object],
    ) -> None:
        super().__init__(fellows, say)
        self._nodes = nodes
        self._rng = rng
        self._dose = dose
        self._node_is_away = False
        self._worker_acts: dict[Act, Callable[[Fellow], None]] = {
            Act.KILL: self._kill,
            Act.FREEZE: self._freeze,
            Act.LEAVE: self._leave,
        }
        self._node_acts: dict[Act, Callable[[Node], None]] = {
            Act.NODE_KILL: self._kill_node,
            Act.NODE_FREEZE: self._freeze_node,
        }

    def begin(self) -> None:
        """Start all workers and choose the moments once they work."""
        super().begin()
        for act, times in self._dose.times.items():
            for _ in range(times):
                moment_s = self._rng.uniform(0.02, 0.95) * self._dose.within_s
                self._after(moment_s, partial(self._do, act))

    def _do(self, act: Act) -> None:
        hit = self._hit_worker(act) if act in self._worker_acts else self._hit_node(act)
        if hit is None:
            self._after(POSTPONED_S, partial(self._do, act))
        else:
            self.done[act] += 1
            self._say(f"{act.value}: {hit}")

    def _hit_worker(self, act: Act) -> str | None:
        working = [fellow for fellow in self.fellows if fellow.working]
        if not working:
            return None
        fellow = self._rng.choice(working)
        self._worker_acts[act](fellow)
        return fellow.name

    def _hit_node(self, act: Act) -> str | None:
        # One at a time: with two of three away nothing can be written at all.
        if self._node_is_away:
            return None
        node = self._rng.choice(self._nodes)
        self._node_is_away = True
        self._node_acts[act](node)
        return str(node.number)

    def _kill(self, fellow: Fellow) -> None:
        fellow.process.kill()
        self._bring_back(fellow, self._rng.uniform(*self._dose.away_s))

    def _leave(self, fellow: Fellow) -> None:
        fellow.leaving = True
        fellow.process.process.send_signal(signal.SIGTERM)

    def _freeze(self, fellow: Fellow) -> None:
        fellow.frozen = True
        fellow.process.process.send_signal(signal.SIGSTOP)
        self._after(self._rng.uniform(*self._dose.frozen_s), partial(self._thaw, fellow))

    def _thaw(self, fellow: Fellow) -> None:
        fellow.frozen = False
        fellow.process.process.send_signal(signal.SIGCONT)

    def _kill_node(self, node: Node) -> None:
        node.kill()
        self._after(self._rng.uniform(*self._dose.node_away_s), partial(self._start_node, node))

    def _start_node(self, node: Node) -> None:
        node.start()
        self._node_is_away = False

    def _freeze_node(self, node: Node) -> None:
        node.freeze()
        self._after(self._rng.uniform(*self._dose.node_away_s), partial(self._thaw_node, node))

    def _thaw_node(self, node: Node) -> None:
        node.thaw()
        self._node_is_away = False
