"""A clock to turn by hand, requests of a given cost, and the specification as slow lists."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from oasr.engine.config import EngineConfig
from oasr.engine.request import Request, RequestState
from oasr.engine.scheduler import Scheduler, SchedulerOutput

_LONGEST = np.zeros(400 + 160 * 4000, dtype=np.float32)


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def audio_of(frames: int) -> np.ndarray:
    """Silence that makes exactly `frames` feature frames."""
    return _LONGEST[: 400 + 160 * (frames - 1)] if frames else _LONGEST[:0]


def offline(clock: Clock, request_id: str, frames: int = 100, priority: int = 0) -> Request:
    return Request(audio_of(frames), request_id, priority=priority, clock=clock)


def stream(clock: Clock, request_id: str, frames: int = 0, priority: int = 0) -> Request:
    request = Request(request_id=request_id, streaming=True, priority=priority, clock=clock)
    request.push_audio(audio_of(frames))
    return request


def ids(requests: list[Request]) -> list[str]:
    return [request.request_id for request in requests]


class Model:
    """The specification's pseudocode on plain lists, with full sorts and full scans.

    It keeps its own record of arrivals and states, and reads only cost and class of a request.
    """

    def __init__(self, config: EngineConfig, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.arrived: dict[str, float] = {}
        self.streaming: list[Request] = []
        self.offline: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        self.arrived[request.request_id] = self.clock.now
        queue = self.streaming if request.streaming else self.offline
        place = len(queue)
        while place and queue[place - 1].priority > request.priority:
            place -= 1
        queue.insert(place, request)

    def remove(self, request: Request) -> None:
        for queue in (self.streaming, self.offline, self.running):
            if request in queue:
                queue.remove(request)

    def schedule(self) -> tuple[list[str], list[str], list[str]]:
        admitted = self._admit()
        batch = self._batch()
        return ids(self.running), ids(admitted), ids(batch)

    def overdue(self, request: Request) -> bool:
        return self.arrived[request.request_id] + self.config.max_wait_time <= self.clock.now

    def _overdue_first(self, queue: list[Request]) -> list[Request]:
        late = sorted(
            (r for r in queue if self.overdue(r)),
            key=lambda r: (self.arrived[r.request_id], r.priority),
        )
        return late + [r for r in queue if r not in late]

    def _preferred(self, limit: int) -> int:
        return max((s for s in self.config.preferred_batch_size or [] if s <= limit), default=0)

    def _admit(self) -> list[Request]:
        budget = self.config.max_batch_size - len(self.running)
        available = min(budget, len(self.streaming))
        if available <= 0:
            return []
        size = available
        if self.config.preferred_batch_size is not None:
            size = max(0, self._preferred(len(self.running) + available) - len(self.running))
            if size == 0 and any(self.overdue(r) for r in self.streaming):
                size = available
        queue = self._overdue_first(self.streaming)
        if self.config.streaming_cohort_admit or self.config.schedule_policy == "sjf":
            late = [r for r in queue if self.overdue(r)]
            rest = [r for r in queue if not self.overdue(r)]
            queue = late + sorted(rest, key=lambda r: (r.priority, r.num_frames))
        admitted = queue[:size]
        for request in admitted:
            self.streaming.remove(request)
            self.running.append(request)
        return admitted

    def _batch(self) -> list[Request]:
        if not self.offline:
            return []
        queue = self._overdue_first(self.offline)
        flush = self.overdue(queue[0])
        batch = self._choose(queue, flush)
        if self.config.preferred_batch_size is not None and not flush:
            target = self._preferred(len(batch))
            batch, overflow = batch[:target], batch[target:]
            if self.config.schedule_policy == "bucket" and target:
                self._to_head_of_class(overflow)
        for request in batch:
            self.offline.remove(request)
        return batch

    def _to_head_of_class(self, overflow: list[Request]) -> None:
        for request in reversed(overflow):
            self.offline.remove(request)
            place = 0
            while place < len(self.offline) and self.offline[place].priority < request.priority:
                place += 1
            self.offline.insert(place, request)

    def _choose(self, queue: list[Request], flush: bool) -> list[Request]:
        cap = self.config.max_batch_size
        policy = self.config.schedule_policy
        if policy == "window":
            return self._window_run(queue, cap)
        if policy == "fcfs" or flush:
            return queue[:cap]
        if policy == "sjf":
            queue = sorted(queue, key=lambda r: (r.priority, r.num_frames))
        batch = queue[:1]
        for candidate in queue[1:]:
            if len(batch) < cap and self._guards([*batch, candidate]):
                batch.append(candidate)
        return batch

    def _window_run(self, queue: list[Request], cap: int) -> list[Request]:
        late = [r for r in queue if self.overdue(r)]
        rest = [r for r in queue if not self.overdue(r)]
        best = [r for r in rest if r.priority == min(q.priority for q in rest)]
        window = (late + best)[: cap * self.config.length_window_factor]
        for rows in range(min(cap, len(window)), 1, -1):
            runs = [
                (0, *others)
                for others in combinations(range(1, len(window)), rows - 1)
                if self._is_allowed_run(window, (0, *others))
            ]
            if runs:
                return [window[place] for place in min(runs, key=lambda r: _rank(window, r))]
        return window[:1]

    def _is_allowed_run(self, window: list[Request], run: tuple[int, ...]) -> bool:
        lengths = [window[place].num_frames for place in run]
        outside = [r.num_frames for place, r in enumerate(window) if place not in run]
        if any(min(lengths) < length < max(lengths) for length in outside):
            return False  # not contiguous in order of length
        limit = self.config.max_batch_frames
        if limit is not None and max(lengths) * len(lengths) > limit:
            return False
        return self._guards([window[place] for place in run])

    def _guards(self, batch: list[Request]) -> bool:
        lengths = [r.num_frames for r in batch]
        if max(lengths) == 0:
            return True
        ratio = self.config.length_bucket_ratio
        if ratio > 0 and min(lengths) / max(lengths) < ratio:
            return False
        pad = self.config.max_offline_pad_ratio
        return not (pad > 0 and max(lengths) * len(lengths) / sum(lengths) > pad)


def _rank(window: list[Request], run: tuple[int, ...]) -> tuple[int, int, list[int]]:
    lengths = sorted(window[place].num_frames for place in run)
    return max(lengths) * len(lengths) - sum(lengths), sum(run), lengths


class Pair:
    """A scheduler and the model side by side; every step must agree."""

    def __init__(self, config: EngineConfig) -> None:
        self.clock = Clock()
        self.scheduler = Scheduler(config, clock=self.clock)
        self.model = Model(config, self.clock)
        self.held: dict[str, Request] = {}
        self.served: list[str] = []  # ended streams and handed-out offline requests
        self.aborted: list[str] = []
        self.count = 0

    def add(self, streaming: bool, frames: int, priority: int) -> None:
        make = stream if streaming else offline
        request = make(self.clock, f"r{self.count}", frames, priority)
        self.count += 1
        self.scheduler.add_request(request)
        self.model.add(request)
        self.held[request.request_id] = request

    def abort(self, choice: int) -> None:
        if request := self._pick(list(self.held), choice):
            assert self.scheduler.abort_request(request.request_id) is request
            self.model.remove(request)
            del self.held[request.request_id]
            self.aborted.append(request.request_id)

    def finish(self, choice: int) -> None:
        if request := self._pick(ids(self.model.running), choice):
            self.scheduler.finish_request(request.request_id)
            self.model.remove(request)
            del self.held[request.request_id]
            self.served.append(request.request_id)

    def push(self, choice: int, frames: int) -> None:
        if request := self._pick(ids(self.model.streaming), choice):
            request.push_audio(audio_of(frames))

    def park(self, choice: int) -> None:
        if request := self._pick(ids(self.model.running), choice):
            self.scheduler.park(request.request_id)
            self.model.remove(request)

    def unpark(self, choice: int) -> None:
        parked = [i for i, r in self.held.items() if r.state is RequestState.PARKED]
        if request := self._pick(parked, choice):
            self.scheduler.unpark(request.request_id)
            self.model.add(request)

    def schedule(self) -> SchedulerOutput:
        expected = self.model.schedule()
        output = self.scheduler.schedule()
        found = ids(output.running_streams), ids(output.newly_admitted), ids(output.offline_batch)
        assert found == expected
        for request in output.offline_batch:
            del self.held[request.request_id]
            self.served.append(request.request_id)
        return output

    def check(self) -> None:
        """The books are exact: index, queues in filed order, counts and states."""
        scheduler, model = self.scheduler, self.model
        assert scheduler._index == self.held
        assert list(scheduler._streaming_waiting) == model.streaming
        assert list(scheduler._offline_waiting) == model.offline
        assert scheduler.num_waiting_streaming == len(model.streaming)
        assert scheduler.num_waiting_offline == len(model.offline)
        assert scheduler.num_waiting == len(model.streaming) + len(model.offline)
        assert scheduler.num_running == len(model.running)
        assert scheduler.has_pending() == bool(self.held)

    def _pick(self, names: list[str], choice: int) -> Request | None:
        return self.held[names[choice % len(names)]] if names else None
