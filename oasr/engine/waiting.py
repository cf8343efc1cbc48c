"""A waiting queue that never searches: by class and arrival, and beside it by age.

Each request is filed behind every request of the same or a better class. Served first, oldest
first, are those that have waited out the bound; they are read off the order by age when a
selection needs them, so nothing is moved when requests turn overdue, however many do at once.
Both orders are linked maps: a request leaves from anywhere in constant time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice, takewhile
from operator import attrgetter

from oasr.engine.request import Request
from oasr.engine.shortest import ShortestFirst

_seniority = attrgetter("arrival_time", "priority")  # of equally old requests, the better class


class _Class:
    """The waiting requests of one priority."""

    def __init__(self, by_length: bool) -> None:
        self.in_turn: OrderedDict[str, Request] = OrderedDict()
        self.by_length = ShortestFirst() if by_length else None

    def add(self, request: Request) -> None:
        self.in_turn[request.request_id] = request
        if self.by_length is not None:
            self.by_length.add(request)

    def remove(self, request: Request) -> None:
        del self.in_turn[request.request_id]
        if self.by_length is not None:
            self.by_length.remove(request)

    def in_order(self) -> Generator[Request, None, None]:
        """The shortest first where lengths are kept, else first come first."""
        if self.by_length is None:
            yield from self.in_turn.values()
        else:
            yield from self.by_length.in_order()


class WaitingQueue:
    """Waiting requests; one is overdue when it has waited `max_wait_time` seconds.

    Iteration is in the order of filing: the best class first, first come first in each. With
    `shortest_first`, `head` and `candidates` order a class by length instead.
    """

    def __init__(self, max_wait_time: float, shortest_first: bool = False) -> None:
        self._max_wait_time = max_wait_time
        self._shortest_first = shortest_first
        self._classes: dict[int, _Class] = {}
        self._priorities: list[int] = []  # of the classes, rising
        self._by_age: OrderedDict[str, Request] = OrderedDict()  # oldest first, once sorted
        self._by_age_sorted = True

    def __len__(self) -> int:
        return len(self._by_age)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._classes[p].in_turn.values() for p in self._priorities)

    def add(self, request: Request) -> None:
        """File behind every request of the same or a better class."""
        if self._by_age:
            youngest = next(reversed(self._by_age.values()))
            self._by_age_sorted &= _seniority(youngest) <= _seniority(request)
        self._by_age[request.request_id] = request
        if request.priority not in self._classes:
            self._classes[request.priority] = _Class(self._shortest_first)
            insort(self._priorities, request.priority)
        self._classes[request.priority].add(request)

    def remove(self, request: Request) -> None:
        """Take one request out, wherever it is; KeyError if it is not here."""
        del self._by_age[request.request_id]
        members = self._classes[request.priority]
        members.remove(request)
        if not members.in_turn:
            del self._classes[request.priority]
            del self._priorities[bisect_left(self._priorities, request.priority)]

    def to_head(self, requests: list[Request]) -> None:
        """Move waiting requests to the head of their classes, in the given order."""
        for request in reversed(requests):
            in_turn = self._classes[request.priority].in_turn
            in_turn.move_to_end(request.request_id, last=False)

    @property
    def promote_at(self) -> float:
        """The instant at which the oldest request turns overdue; until then nobody is."""
        self._sort_by_age()
        oldest = next(iter(self._by_age.values()), None)
        return float("inf") if oldest is None else oldest.arrival_time + self._max_wait_time

    def promote_overdue(self, count: int, now: float) -> list[Request]:
        """The overdue in front of everybody else: up to `count` of them, oldest first."""
        if count == 0 or now < self.promote_at:
            return []
        oldest = list(islice(self._by_age.values(), count))
        if self._is_overdue(oldest[-1], now):
            return oldest  # a deep queue under overload is overdue as far as anyone looks
        return list(takewhile(lambda request: self._is_overdue(request, now), oldest))

    def take(self, request: Request) -> None:
        """`remove`, for a request that is served."""
        self.remove(request)

    def head(self, count: int, now: float) -> list[Request]:
        """The `count` next requests: the overdue, then the candidates."""
        chosen = self.promote_overdue(count, now)
        if len(chosen) < count:
            with closing(self.candidates()) as candidates:
                chosen += _others(candidates, chosen, count - len(chosen))
        return chosen

    def in_turn(self, count: int, now: float) -> list[Request]:
        """The `count` next requests whatever their lengths: the overdue, then as filed."""
        chosen = self.promote_overdue(count, now)
        return chosen + _others(self, chosen, count - len(chosen))

    def turns(self, now: float, by_length: bool) -> Generator[Request, None, None]:
        """Every request in the order of `head` or `in_turn`; close it before the next call."""
        overdue: set[str] = set()
        if now >= self.promote_at:
            for request in self._by_age.values():
                if not self._is_overdue(request, now):
                    break
                overdue.add(request.request_id)
                yield request
        with closing(self.candidates() if by_length else self._filed()) as others:
            for request in others:
                if request.request_id not in overdue:
                    yield request

    def window(self, count: int, batches: int, now: float) -> list[Request]:
        """What one batch of `count` may be chosen from, up to `batches` batches long.

        The overdue, then the best class of the others in turn.
        """
        most = count * batches
        chosen = self.promote_overdue(most, now)
        for priority in self._priorities:
            if len(chosen) == most:
                break
            in_turn = self._classes[priority].in_turn.values()
            if best := _others(in_turn, chosen, most - len(chosen)):
                return chosen + best
        return chosen

    def candidates(self) -> Generator[Request, None, None]:
        """Every request class by class, by length or in turn; close it before the next call."""
        for priority in self._priorities:
            with closing(self._classes[priority].in_order()) as members:
                yield from members

    def _filed(self) -> Generator[Request, None, None]:
        yield from self

    def _sort_by_age(self) -> None:
        if self._by_age_sorted:
            return
        by_age = sorted(self._by_age.values(), key=_seniority)
        self._by_age = OrderedDict((request.request_id, request) for request in by_age)
        self._by_age_sorted = True

    def _is_overdue(self, request: Request, now: float) -> bool:
        return request.arrival_time + self._max_wait_time <= now


def _others(requests: Iterable[Request], taken: list[Request], count: int) -> list[Request]:
    """The first `count` of `requests` that are not `taken`."""
    if not taken:
        return list(islice(requests, count))
    ids = {request.request_id for request in taken}
    return list(islice((r for r in requests if r.request_id not in ids), count))
