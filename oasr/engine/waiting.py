"""A waiting queue that never searches: overdue requests by age, then classes in order.

The order is that of the specification's deque: each request is filed behind every request of
the same or a better class, and overdue requests move to the head, oldest first. Linked maps
hold it, so that a request leaves from anywhere in constant time, and a request is looked at
for the bound on waiting only when it arrives and when it turns overdue.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from math import inf
from operator import attrgetter

from oasr.engine.request import Request

_age = attrgetter("arrival_time")
_length = attrgetter("num_frames")


class WaitingQueue:
    """Requests in their order of service; `max_wait_time` seconds make one overdue."""

    def __init__(self, max_wait_time: float) -> None:
        self.promote_at = inf  # no request turns overdue before this instant
        self._max_wait_time = max_wait_time
        self._overdue: OrderedDict[str, Request] = OrderedDict()  # oldest first
        self._in_time: OrderedDict[str, Request] = OrderedDict()  # oldest first, once sorted
        self._in_time_sorted = True
        self._classes: dict[int, OrderedDict[str, Request]] = {}  # of the requests in time
        self._priorities: list[int] = []  # rising, one for each class

    def __len__(self) -> int:
        return len(self._overdue) + len(self._in_time)

    def __iter__(self) -> Iterator[Request]:
        yield from self._overdue.values()
        for priority in self._priorities:
            yield from self._classes[priority].values()

    def __contains__(self, request: Request) -> bool:
        return request.request_id in self._overdue or request.request_id in self._in_time

    @property
    def has_overdue(self) -> bool:
        """Whether the head had waited out the bound when `promote_overdue` last ran."""
        return bool(self._overdue)

    def add(self, request: Request) -> None:
        """File behind every request in time of the same or a better class."""
        if self._in_time:
            youngest = next(reversed(self._in_time.values()))
            self._in_time_sorted &= request.arrival_time >= youngest.arrival_time
        self._in_time[request.request_id] = request
        if request.priority not in self._classes:
            self._classes[request.priority] = OrderedDict()
            insort(self._priorities, request.priority)
        self._classes[request.priority][request.request_id] = request
        self.promote_at = min(self.promote_at, request.arrival_time + self._max_wait_time)

    def remove(self, request: Request) -> None:
        """Take one request out, wherever it is; KeyError if it is not here."""
        if self._overdue.pop(request.request_id, None) is None:
            del self._in_time[request.request_id]
            self._leave_class(request)

    def to_head(self, requests: list[Request]) -> None:
        """Move requests that are in time to the head of their classes, in the given order."""
        for request in reversed(requests):
            self._classes[request.priority].move_to_end(request.request_id, last=False)

    def promote_overdue(self, now: float) -> None:
        """Move every request that has waited `max_wait_time` to the head, oldest first."""
        if now < self.promote_at:
            return
        self._sort_in_time()
        turned = self._take_overdue(now)
        displaced = bool(
            turned
            and self._overdue
            and turned[0].arrival_time < next(reversed(self._overdue.values())).arrival_time
        )
        self._overdue.update((request.request_id, request) for request in turned)
        if displaced:
            self._overdue = _by_age(self._overdue.values())

    def first(self, count: int, shortest_first: bool = False) -> list[Request]:
        """The `count` next requests: the overdue, then class by class, each in its own order."""
        chosen = list(islice(self._overdue.values(), count))
        for priority in self._priorities:
            room = count - len(chosen)
            if room <= 0:
                break
            members = self._classes[priority].values()
            chosen += (
                nsmallest(room, members, key=_length) if shortest_first else islice(members, room)
            )
        return chosen

    def window(self, count: int) -> list[Request]:
        """Up to `count` requests from the head: the overdue, then the best class in time."""
        chosen = list(islice(self._overdue.values(), count))
        if self._priorities:
            best = self._classes[self._priorities[0]]
            chosen += islice(best.values(), count - len(chosen))
        return chosen

    def shortest_first(self) -> Iterator[Request]:
        """Every request by (class, length), the overdue first; a class is sorted when reached."""
        yield from self._overdue.values()
        for priority in self._priorities:
            yield from sorted(self._classes[priority].values(), key=_length)

    def _take_overdue(self, now: float) -> list[Request]:
        """Take the overdue out of their classes, oldest first, and set `promote_at`."""
        turned = []
        self.promote_at = inf
        while self._in_time:
            oldest = next(iter(self._in_time.values()))
            deadline = oldest.arrival_time + self._max_wait_time
            if deadline > now:
                self.promote_at = deadline
                break
            self._in_time.popitem(last=False)
            self._leave_class(oldest)
            turned.append(oldest)
        return turned

    def _sort_in_time(self) -> None:
        if not self._in_time_sorted:
            self._in_time = _by_age(self._in_time.values())
            self._in_time_sorted = True

    def _leave_class(self, request: Request) -> None:
        members = self._classes[request.priority]
        del members[request.request_id]
        if not members:
            del self._classes[request.priority]
            del self._priorities[bisect_left(self._priorities, request.priority)]


def _by_age(requests: Iterable[Request]) -> OrderedDict[str, Request]:
    return OrderedDict((request.request_id, request) for request in sorted(requests, key=_age))
