"""A waiting queue in which no tenant holds up another: one queue each, merged in turns.

The overdue still come before all others, and then the better class. Among those that are equal in
that, the next is of the tenant that holds the fewest slots, of these the one that was given the
least work, of these the one whose request is older. Inside a tenant the order is that of
`WaitingQueue`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from oasr.engine.request import Request
from oasr.engine.shares import Shares
from oasr.engine.waiting import WaitingQueue

Turns = Generator[Request, None, None]
_Rank = tuple[int, int, int, int, float, str]  # the tenant's name is last and settles it


class FairQueue:
    """Waiting requests of many tenants, with the interface of `WaitingQueue`."""

    def __init__(
        self,
        max_wait_time: float,
        shortest_first: bool = False,
        slots_held: Mapping[str, int] | None = None,
    ) -> None:
        """`slots_held` are the running streams of each tenant, as they are when it is read."""
        self._max_wait_time = max_wait_time
        self._shortest_first = shortest_first
        self._slots_held: Mapping[str, int] = {} if slots_held is None else slots_held
        self._queues: dict[str, WaitingQueue] = {}  # of tenants with anything waiting
        self._shares = Shares()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._queues.values())

    def add(self, request: Request) -> None:
        queue = self._queues.get(request.tenant)
        if queue is None:
            queue = WaitingQueue(self._max_wait_time, self._shortest_first)
            self._queues[request.tenant] = queue
            self._shares.join(request.tenant)
        queue.add(request)
        self._length += 1

    def remove(self, request: Request) -> None:
        """Take one request out, wherever it is; KeyError if it is not here."""
        queue = self._queues[request.tenant]
        queue.remove(request)
        self._length -= 1
        if not queue:
            del self._queues[request.tenant]
            self._shares.leave(request.tenant)

    def take(self, request: Request) -> None:
        """`remove`, and its tenant has had a turn of the request's length."""
        self._shares.charge(request.tenant, _work(request))
        self.remove(request)

    def to_head(self, requests: list[Request]) -> None:
        """Move waiting requests to the head of their tenants' classes, in the given order."""
        for request in reversed(requests):
            self._queues[request.tenant].to_head([request])

    @property
    def promote_at(self) -> float:
        """The instant at which the oldest request turns overdue; until then nobody is."""
        return min((queue.promote_at for queue in self._queues.values()), default=float("inf"))

    def head(self, count: int, now: float) -> list[Request]:
        """The `count` next requests: the overdue, then the candidates, in turns."""
        return self._first(count, now, lambda queue: queue.turns(now, by_length=True))

    def in_turn(self, count: int, now: float) -> list[Request]:
        """The `count` next requests whatever their lengths, in turns."""
        return self._first(count, now, lambda queue: queue.turns(now, by_length=False))

    def window(self, count: int, batches: int, now: float) -> list[Request]:
        """What one batch of `count` may be chosen from: its shares, where tenants wait together.

        Where one tenant waits it is `batches` batches long, else one: what lengths would choose
        from more is no fair share.
        """
        if len(self._queues) == 1:
            (queue,) = self._queues.values()
            return queue.window(count, batches, now)
        found = self.in_turn(count, now)
        classes = [request.priority for request in found if not self._is_late(request, now)]
        return [r for r in found if self._is_late(r, now) or r.priority == classes[0]]

    def candidates(self) -> Turns:
        """Every request class by class, in turns; close it before the next call."""
        return self._merged(float("-inf"), WaitingQueue.candidates)

    def _first(
        self, count: int, now: float, turns: Callable[[WaitingQueue], Turns]
    ) -> list[Request]:
        with closing(self._merged(now, turns)) as merged:
            return list(islice(merged, count))

    def _merged(self, now: float, turns: Callable[[WaitingQueue], Turns]) -> Turns:
        """The requests of all tenants as if each was given its slot or its work at once."""
        with ExitStack() as open_turns:
            heads: list[tuple[_Rank, int, Request, Turns]] = []
            for tenant, queue in self._queues.items():
                own = open_turns.enter_context(closing(turns(queue)))
                request = next(own)  # a queue that is here is not empty
                given = self._shares.mark(tenant)
                heads.append((self._rank(request, now, 0, given), given, request, own))
            heapify(heads)
            ahead = dict.fromkeys(self._queues, 0)
            while heads:
                _, given, request, own = heads[0]
                yield request
                ahead[request.tenant] += 1
                given += _work(request)
                following = next(own, None)
                if following is None:
                    heappop(heads)
                else:
                    rank = self._rank(following, now, ahead[request.tenant], given)
                    heapreplace(heads, (rank, given, following, own))

    def _is_late(self, request: Request, now: float) -> bool:
        return request.arrival_time + self._max_wait_time <= now

    def _rank(self, request: Request, now: float, ahead: int, given: int) -> _Rank:
        """The place of a tenant's next request; `ahead` of it go so many of the same tenant."""
        held = self._slots_held.get(request.tenant, 0) + ahead
        order = (0, 0) if self._is_late(request, now) else (1, request.priority)
        return *order, held, given, request.arrival_time, request.tenant


def _work(request: Request) -> int:
    """What a request is charged with: its feature frames, and one for being there."""
    return 1 + request.num_frames
