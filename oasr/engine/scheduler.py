"""Decides which requests a step serves: admission of streams, one batch of offline requests.

Bookkeeping only: no tensors, no I/O. Streams are admitted into a running pool and stay there
until they finish; offline requests are handed out once, as a batch. Policies reorder work for
less padding, and `max_wait_time` bounds how long that may hold anyone up: whoever has waited
it out is served by age alone, whatever its length and priority.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from oasr.engine.batching import (
    Guards,
    first_fit,
    largest_preferred,
    least_padded_run,
    split_batch,
)
from oasr.engine.config import EngineConfig
from oasr.engine.fair_queue import FairQueue
from oasr.engine.request import Request, RequestState
from oasr.engine.waiting import WaitingQueue

Waiting: TypeAlias = WaitingQueue | FairQueue


@dataclass
class SchedulerOutput:
    """The work of one step."""

    running_streams: list[Request]  # all active streams, in order of admission
    newly_admitted: list[Request]  # the streams among them that this step admitted
    offline_batch: list[Request]  # one batch, its requests now the caller's to finish


class Scheduler:
    """Holds the waiting queues and the running pool; `schedule` is called once per step."""

    def __init__(self, config: EngineConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._guards = Guards.of(config)
        sjf = config.schedule_policy == "sjf"
        self._slots_held: Counter[str] = Counter()  # running streams of each tenant
        self._streaming_waiting = self._new_queue(
            sjf or config.streaming_cohort_admit, self._slots_held
        )
        self._offline_waiting = self._new_queue(sjf, {})
        self._running: OrderedDict[str, Request] = OrderedDict()
        self._parked: dict[str, Request] = {}
        self._index: dict[str, Request] = {}  # every request that the scheduler holds
        self._next_stream_id = 0

    def _new_queue(self, by_length: bool, slots_held: Mapping[str, int]) -> Waiting:
        max_wait_time = self._config.max_wait_time
        if self._config.tenant_fairness:
            return FairQueue(max_wait_time, by_length, slots_held)
        return WaitingQueue(max_wait_time, by_length)

    @property
    def num_waiting_streaming(self) -> int:
        return len(self._streaming_waiting)

    @property
    def num_waiting_offline(self) -> int:
        return len(self._offline_waiting)

    @property
    def num_waiting(self) -> int:
        return self.num_waiting_streaming + self.num_waiting_offline

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_parked(self) -> int:
        return len(self._parked)

    @property
    def running_streams(self) -> list[Request]:
        """The streams that hold a slot, in order of admission."""
        return list(self._running.values())

    def next_streams(self, count: int) -> list[Request]:
        """The waiting streams that `count` slots would go to now."""
        return self._streaming_waiting.head(count, self._clock())

    def has_pending(self) -> bool:
        """True while a request is held: waiting, running or parked."""
        return bool(self._index)

    def add_request(self, request: Request) -> None:
        """Queue a new request; ValueError if its id is taken or it has been queued before."""
        if request.request_id in self._index:
            raise ValueError(f"request_id {request.request_id!r} is in use")
        if request.state is not RequestState.WAITING:
            raise ValueError(f"request {request.request_id!r} is {request.state.value}, not new")
        self._index[request.request_id] = request
        self._queue_of(request).add(request)

    def find_request(self, request_id: str) -> Request | None:
        """The held request of this id; None for unknown, finished and handed-out ids."""
        return self._index.get(request_id)

    def finish_request(self, request_id: str) -> Request:
        """Take a running stream out as finished; KeyError if it is not running."""
        request = self._leave_slot(request_id)
        request.move_to(RequestState.FINISHED)
        del self._index[request_id]
        return request

    def abort_request(self, request_id: str) -> Request | None:
        """Take a request out from wherever it is held; None if the id is unknown."""
        request = self._index.pop(request_id, None)
        if request is None:
            return None
        if request.state is RequestState.RUNNING:
            self._leave_slot(request_id)
        elif request.state is RequestState.PARKED:
            del self._parked[request_id]
        else:
            self._queue_of(request).remove(request)
        request.move_to(RequestState.ABORTED)
        return request

    def park(self, request_id: str) -> Request:
        """Take the slot of a running stream, which then waits for `unpark` outside the queues.

        KeyError if it is not running. The caller releases or moves its caches.
        """
        request = self._leave_slot(request_id)
        request.move_to(RequestState.PARKED)
        self._parked[request_id] = request
        return request

    def unpark(self, request_id: str) -> None:
        """Queue a parked stream for admission, as if it had just arrived; KeyError if it is not."""
        request = self._parked.pop(request_id)
        request.move_to(RequestState.WAITING)
        request.arrival_time = self._clock()
        self._streaming_waiting.add(request)

    def schedule(self) -> SchedulerOutput:
        """Choose the next step's work and move it to RUNNING."""
        now = self._clock()
        newly_admitted = self._admit_streaming(now)
        offline_batch = self._take_offline_batch(now)
        return SchedulerOutput(list(self._running.values()), newly_admitted, offline_batch)

    def split_offline_batch(
        self, batch: Sequence[Request]
    ) -> tuple[list[list[Request]], list[int] | None]:
        """The forwards of one batch and the original places of their rows; see `split_batch`."""
        return split_batch(batch, self._config)

    def slots_held(self, tenant: str) -> int:
        """Running streams of a tenant."""
        return self._slots_held[tenant]

    def _leave_slot(self, request_id: str) -> Request:
        request = self._running.pop(request_id)
        self._slots_held[request.tenant] -= 1
        if not self._slots_held[request.tenant]:
            del self._slots_held[request.tenant]
        return request

    def _queue_of(self, request: Request) -> Waiting:
        return self._streaming_waiting if request.streaming else self._offline_waiting

    def _admit_streaming(self, now: float) -> list[Request]:
        queue = self._streaming_waiting
        budget = self._config.max_batch_size - len(self._running)
        if budget <= 0 or not queue:
            return []
        admitted = queue.head(self._admission_size(budget, now), now)
        for request in admitted:
            queue.take(request)
            request.move_to(RequestState.RUNNING)
            self._slots_held[request.tenant] += 1
            request.stream_id = self._next_stream_id
            self._next_stream_id += 1
            self._running[request.request_id] = request
        return admitted

    def _admission_size(self, budget: int, now: float) -> int:
        """How many streams to admit: up to a preferred pool size, or all when one is overdue."""
        available = min(budget, len(self._streaming_waiting))
        if self._config.preferred_batch_size is None:
            return available
        running = len(self._running)
        target = largest_preferred(self._config.preferred_batch_size, running + available)
        if target > running:
            return target - running
        return available if now >= self._streaming_waiting.promote_at else 0

    def _take_offline_batch(self, now: float) -> list[Request]:
        queue = self._offline_waiting
        if not queue:
            return []
        force_flush = now >= queue.promote_at
        batch = self._build_offline_batch(now, force_flush)
        if not force_flush:
            batch = self._trim_to_preferred(batch)
        for request in batch:
            queue.take(request)
            request.move_to(RequestState.RUNNING)
            del self._index[request.request_id]
        return batch

    def _build_offline_batch(self, now: float, force_flush: bool) -> list[Request]:
        """The policy's choice, still queued. A flush takes the oldest whatever their lengths."""
        queue = self._offline_waiting
        max_rows = self._config.max_batch_size
        policy = self._config.schedule_policy
        if policy == "window":
            window = queue.window(max_rows, self._config.length_window_factor, now)
            return least_padded_run(window, max_rows, self._guards)
        if policy == "fcfs" or force_flush:
            return queue.in_turn(max_rows, now)
        with closing(queue.candidates()) as candidates:
            return first_fit(candidates, max_rows, self._guards)

    def _trim_to_preferred(self, batch: list[Request]) -> list[Request]:
        """The part of a batch that makes a preferred size; the rest stays queued."""
        preferred = self._config.preferred_batch_size
        if preferred is None:
            return batch
        target = largest_preferred(preferred, len(batch))
        if target and self._config.schedule_policy == "bucket":
            self._offline_waiting.to_head(batch[target:])
        return batch[:target]
