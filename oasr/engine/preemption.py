"""Who gives way: running streams that lose their slot between two decisions of the scheduler.

An open stream ends only when its next chunk is read, which may be behind the chunks of streams
without a slot: streams that have nothing to decode must give way or nothing moves. Streams that
have something give way to a better class, to whoever is overdue, and where tenants take turns to
one whose tenant has fewer slots; unless they are overdue themselves. Each stream decodes at least
once between its admission and the next call, so all get on.
"""

from __future__ import annotations

import time
from collections import Counter
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
        self._is_fair = config.tenant_fairness
        self._clock = clock
        self._coming: Counter[str] = Counter()  # streams of each tenant that get a slot
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
        self._coming.clear()
        idle.sort(key=lambda request: (request.priority, self._held(request)), reverse=True)
        for request in idle[:wanted]:
            self._scheduler.park(request.request_id)
        if wanted > len(idle):
            self._preempt(busy, free + len(idle))

    def _preempt(self, busy: list[Request], free: int) -> None:
        """Exchanges busy streams for waiting ones that come before them; `free` come in anyway."""
        now = self._clock()
        victims = [r for r in busy if not self._is_late(self._ready[r.request_id], now)]
        first = self._scheduler.next_streams(free + len(victims))
        self._coming = Counter(request.tenant for request in first[:free])
        for request in first[free:]:
            if request.request_id not in self._ready:
                continue
            ranked = [r for r in victims if self._gives_way(r, request, now)]
            if not ranked:
                continue
            victim = max(ranked, key=self._rank)
            victims.remove(victim)
            self._coming[request.tenant] += 1
            self._scheduler.park(victim.request_id)
            self._scheduler.unpark(victim.request_id)

    def _gives_way(self, busy: Request, waiting: Request, now: float) -> bool:
        """Whether the slot of a busy stream that is not overdue goes to a waiting one."""
        spare = 0  # slots by which the busy one's tenant is ahead
        if self._is_fair and busy.tenant != waiting.tenant:
            spare = self._held(busy) - self._held(waiting)
            if spare <= 0:
                return busy.priority > waiting.priority
        if self._is_late(waiting.arrival_time, now) or busy.priority > waiting.priority:
            return True
        return busy.priority == waiting.priority and spare > 1

    def _rank(self, busy: Request) -> tuple[int, int, float]:
        """The worst class gives way first, then who has most slots, then who had the last turn."""
        return busy.priority, self._held(busy), self._ready[busy.request_id]

    def _held(self, request: Request) -> int:
        """Slots of the request's tenant after what is decided, where tenants matter."""
        if not self._is_fair:
            return 0
        return self._scheduler.slots_held(request.tenant) + self._coming[request.tenant]

    def _is_late(self, since: float, now: float) -> bool:
        return since + self._max_wait_time <= now
