"""Who gives way: running streams that lose their slot between two decisions of the scheduler.

An open stream ends only when its next chunk is read, which may be behind the chunks of streams
without a slot: streams that have nothing to decode must give way or nothing moves. Streams that
have something give way to a better class, and to whoever is overdue; unless they are overdue
themselves. Each decodes at least once between its admission and the next call, so all get on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from oasr.engine.config import EngineConfig
from oasr.engine.request import Request
from oasr.engine.scheduler import Scheduler


class Preemption:
    """Knows which streams have something to decode, and since when."""

    def __init__(
        self,
        scheduler: Scheduler,
        config: EngineConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._max_batch_size = config.max_batch_size
        self._max_wait_time = config.max_wait_time
        self._clock = clock
        self._ready: dict[str, float] = {}  # id: when it had something and was not served

    @property
    def ready(self) -> list[str]:
        """The streams that a step could advance."""
        return list(self._ready)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def mark_ready(self, request_id: str) -> None:
        """The stream has something to decode."""
        self._ready.setdefault(request_id, self._clock())

    def mark_served(self, request_id: str, has_more: bool) -> None:
        """The stream had its turn, or is gone; with `has_more` it waits for the next one."""
        self._ready.pop(request_id, None)
        if has_more:
            self._ready[request_id] = self._clock()

    def make_room(self) -> None:
        """Parks running streams so that waiting ones with something to decode get slots."""
        free = self._max_batch_size - self._scheduler.num_running
        if free >= self._scheduler.num_waiting_streaming:
            return
        running = self._scheduler.running_streams
        busy = [request for request in running if request.request_id in self._ready]
        wanted = len(self._ready) - len(busy) - free
        if wanted <= 0:
            return
        idle = [request for request in running if request.request_id not in self._ready]
        idle.sort(key=_by_class, reverse=True)
        for request in idle[:wanted]:
            self._scheduler.park(request.request_id)
        if wanted > len(idle):
            self._preempt(busy, free + len(idle))

    def _preempt(self, busy: list[Request], free: int) -> None:
        """Exchanges busy streams for waiting ones that come before them; `free` come in anyway."""
        now = self._clock()
        late = now - self._max_wait_time  # whoever has waited since then or longer is overdue
        in_time = (request for request in busy if self._ready[request.request_id] > late)
        # The worst class first, and in it those that were served last.
        victims = deque(sorted(in_time, key=self._served_at, reverse=True))
        for request in self._scheduler.next_streams(free + len(victims))[free:]:
            if request.request_id not in self._ready:
                continue
            if not victims:
                break
            if request.arrival_time > late and victims[0].priority <= request.priority:
                break
            victim = victims.popleft().request_id
            self._scheduler.park(victim)
            self._scheduler.unpark(victim)

    def _served_at(self, request: Request) -> tuple[int, float]:
        return request.priority, self._ready[request.request_id]


def _by_class(request: Request) -> int:
    return request.priority
