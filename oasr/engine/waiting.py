"""A waiting queue that never searches: by class and arrival, and beside it by age.

Each request is filed behind every request of the same or a better class. Served first, oldest
first, are those that have waited out the bound; they are read off the order by age when a
selection needs them, so nothing is moved when requests turn overdue, however many do at once.
Both orders are linked maps: a request leaves from anywhere in constant time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from heapq import nsmallest
from itertools import chain, islice, takewhile
from operator import attrgetter

from oasr.engine.request import Request

_length = attrgetter("num_frames")
_seniority = attrgetter("arrival_time", "priority")  # of equally old requests, the better class


class WaitingQueue:
    """Waiting requests; one is overdue when it has waited `max_wait_time` seconds.

    Iteration is in the order of filing: the best class first, first come first in each.
    """

    def __init__(self, max_wait_time: float) -> None:
        self._max_wait_time = max_wait_time
        self._classes: dict[int, OrderedDict[str, Request]] = {}
        self._priorities: list[int] = []  # of the classes, rising
        self._by_age: OrderedDict[str, Request] = OrderedDict()  # oldest first, once sorted
        self._by_age_sorted = True

    def __len__(self) -> int:
        return len(self._by_age)

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(self._classes[p].values() for p in self._priorities)

    def add(self, request: Request) -> None:
        """File behind every request of the same or a better class."""
        if self._by_age:
            youngest = next(reversed(self._by_age.values()))
            self._by_age_sorted &= _seniority(youngest) <= _seniority(request)
        self._by_age[request.request_id] = request
        if request.priority not in self._classes:
            self._classes[request.priority] = OrderedDict()
            insort(self._priorities, request.priority)
        self._classes[request.priority][request.request_id] = request

    def remove(self, request: Request) -> None:
        """Take one request out, wherever it is; KeyError if it is not here."""
        del self._by_age[request.request_id]
        members = self._classes[request.priority]
        del members[request.request_id]
        if not members:
            del self._classes[request.priority]
            del self._priorities[bisect_left(self._priorities, request.priority)]

    def to_head(self, requests: list[Request]) -> None:
        """Move waiting requests to the head of their classes, in the given order."""
        for request in reversed(requests):
            self._classes[request.priority].move_to_end(request.request_id, last=False)

    def has_overdue(self, now: float) -> bool:
        """Whether the oldest request has waited out the bound."""
        self._sort_by_age()
        oldest = next(iter(self._by_age.values()), None)
        return oldest is not None and self._is_overdue(oldest, now)

    def overdue(self, count: int, now: float) -> list[Request]:
        """Up to `count` requests that have waited out the bound, oldest first."""
        if count == 0 or not self.has_overdue(now):
            return []
        oldest = list(islice(self._by_age.values(), count))
        if self._is_overdue(oldest[-1], now):
            return oldest  # a deep queue under overload is overdue as far as anyone looks
        return list(takewhile(lambda request: self._is_overdue(request, now), oldest))

    def head(self, count: int, now: float, shortest_first: bool = False) -> list[Request]:
        """The `count` next requests: the overdue, then class by class.

        Inside a class, first come first, or the shortest first.
        """
        chosen = self.overdue(count, now)
        for priority in self._priorities:
            room = count - len(chosen)
            if room == 0:
                break
            rest = self._class_without(priority, chosen)
            chosen += nsmallest(room, rest, key=_length) if shortest_first else islice(rest, room)
        return chosen

    def window(self, count: int, now: float) -> list[Request]:
        """Up to `count` requests: the overdue, then the best class of the others."""
        chosen = self.overdue(count, now)
        for priority in self._priorities:
            room = count - len(chosen)
            best = list(islice(self._class_without(priority, chosen), room)) if room else []
            if best or not room:
                return chosen + best
        return chosen

    def shortest_first(self) -> Iterator[Request]:
        """Every request by (class, length); a class is sorted when it is reached."""
        for priority in self._priorities:
            yield from sorted(self._classes[priority].values(), key=_length)

    def _sort_by_age(self) -> None:
        if self._by_age_sorted:
            return
        by_age = sorted(self._by_age.values(), key=_seniority)
        self._by_age = OrderedDict((request.request_id, request) for request in by_age)
        self._by_age_sorted = True

    def _is_overdue(self, request: Request, now: float) -> bool:
        return request.arrival_time + self._max_wait_time <= now

    def _class_without(self, priority: int, taken: list[Request]) -> Iterator[Request]:
        members = self._classes[priority]
        if not taken:
            return iter(members.values())
        ids = {request.request_id for request in taken}
        return (request for request in members.values() if request.request_id not in ids)
