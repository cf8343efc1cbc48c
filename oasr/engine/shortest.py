"""Waiting requests by length, where lengths only grow: a heap that corrects itself.

A stream's length is what it has buffered, so it grows while the stream waits and nothing tells
the queue. An entry therefore records a lower bound: if the top one is still true it is the
shortest of all, else it sinks to its place. Entries of requests that left stay until they come
up or outnumber the others.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heapify, heappop, heappush, heapreplace

from oasr.engine.request import Request

_SPARE = 64  # stale entries that are never worth a clean-up


class ShortestFirst:
    """Requests in order of length, first come first among equals."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, Request]] = {}  # id: (ticket, request)
        self._heap: list[tuple[int, int, str]] = []  # (length when noted, ticket, id)
        self._next_ticket = 0

    def add(self, request: Request) -> None:
        self._held[request.request_id] = self._next_ticket, request
        heappush(self._heap, (request.num_frames, self._next_ticket, request.request_id))
        self._next_ticket += 1

    def remove(self, request: Request) -> None:
        """Forget one request; KeyError if it is not here."""
        del self._held[request.request_id]
        if len(self._heap) > 2 * len(self._held) + _SPARE:
            self._heap = [(r.num_frames, ticket, i) for i, (ticket, r) in self._held.items()]
            heapify(self._heap)

    def in_order(self) -> Generator[Request, None, None]:
        """Every request, the shortest first; close it before the next call."""
        passed = []
        try:
            while self._heap:
                noted, ticket, request_id = self._heap[0]
                held_ticket, request = self._held.get(request_id, (None, None))
                if request is None or held_ticket != ticket:
                    heappop(self._heap)
                elif request.num_frames != noted:
                    heapreplace(self._heap, (request.num_frames, ticket, request_id))
                else:
                    passed.append(heappop(self._heap))
                    yield request
        finally:
            for entry in passed:
                heappush(self._heap, entry)
