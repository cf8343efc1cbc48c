"""Several models in one loop: live first, and no other keeps it waiting for more than a forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from oasr.decoding.options import DecodingOptions
from oasr.engine.engine import ASREngine
from oasr.engine.request import RequestOutput
from oasr.engine.stats import StepStats
from tests.support.engine import make_engine, noise, tiny_model
from tests.support.lanes import Clock
from worker.commits import ISOLATED_FROM
from worker.models import Apart, Models
from worker.recognizers import Recognizers

WINDOW = 32_000


@dataclass
class Owner:
    number: int = 3
    start_counter: int = 1


class NoChild:
    """A child process that nobody needs."""

    has_work = False
    closed = False
    step = staticmethod(list)
    runnable_samples = staticmethod(dict)

    def close(self) -> None:
        self.closed = True


class FakeProcess(NoChild):
    """A model in a process of its own, as far as stepping goes."""

    def __init__(self) -> None:
        self.stats = [StepStats(step_s=3.0), StepStats(step_s=2.0)]
        self.steps = 0

    def step(self) -> list[RequestOutput]:  # type: ignore[override]
        self.steps += 1
        return []


def small_engine() -> ASREngine:
    return make_engine(
        tiny_model(),
        max_wait_time=0.0,
        max_batch_frames=WINDOW // 160 + 8,
        max_batch_size=8,
        chunk_size=4,
        one_forward_per_step=True,
    )


class Desk:
    """A model for calls, two for recordings in the same process, and one apart."""

    def __init__(self) -> None:
        clock, self.engines = Clock(), [small_engine() for _ in range(3)]
        self.process = FakeProcess()
        self.children = [NoChild() for _ in self.engines]
        served: dict[str, Any] = {
            name: Recognizers(engine, child, clock, f"{name}/")  # type: ignore[arg-type]
            for name, engine, child in zip(
                ("live", "files", "more"), self.engines, self.children, strict=True
            )
        }
        served["apart"] = Apart(self.process, clock, "apart/")  # type: ignore[arg-type]
        self.models = Models(served)
        self.heard: list[RequestOutput] = []

    def recording(self, model: str, seed: int) -> str:
        return self.models.of(Owner(), model).transcribe(
            noise(WINDOW, seed), 0, DecodingOptions(), self.heard.append
        )

    def call(self) -> Callable[[], None]:
        """A stream; what is returned feeds it a window."""
        engine = self.engines[0]
        engine.add_streaming_request("live/call")
        return lambda: engine.feed_chunk("live/call", noise(16_000, 9))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_live_steps_first_then_one_other_and_those_take_turns(desk: Desk) -> None:
    feed = desk.call()
    for seed in range(3):
        desk.recording("files", seed)
        desk.recording("more", seed)
    order = []
    for _ in range(6):
        feed()
        order.append([step.model for step in desk.models.step() if step.is_ours])

    assert order == [["live", "files"], ["live", "more"]] * 3


def test_between_two_live_steps_one_window_of_one_recording_is_decoded(desk: Desk) -> None:
    for seed in range(6):
        desk.recording("files", seed)

    counts = []
    while desk.models.has_work:
        (step,) = [made for made in desk.models.step() if made.is_ours]
        counts.append((step.stats.forwards, step.stats.offline_requests))

    assert counts == [(1, 1)] * 6
    assert len(desk.heard) == 6


def test_a_process_of_its_own_is_listened_to_in_every_step_and_holds_nobody_up(
    desk: Desk,
) -> None:
    first, second = desk.models.step(), desk.models.step()

    assert [(s.model, s.stats.step_s, s.is_ours) for s in first] == [
        ("apart", 3.0, False),
        ("apart", 2.0, False),
    ]
    assert second == []
    assert desk.process.steps == 2


def test_requests_are_found_again_where_they_were_opened(desk: Desk) -> None:
    ids = {model: desk.recording(model, 1) for model in ("live", "files", "more")}

    assert len(set(ids.values())) == 3
    for model, request_id in ids.items():
        assert desk.models.holding(request_id) is desk.models.of(Owner(), model)
    assert desk.models.open_requests() == {"live": 1, "files": 1, "more": 1, "apart": 0}
    desk.models.holding(ids["files"]).drop(ids["files"])
    assert desk.models.open_requests()["files"] == 0


def test_partitions_whose_owners_keep_dying_have_a_child_for_each_model_here(desk: Desk) -> None:
    owner = Owner(start_counter=ISOLATED_FROM)
    healthy = Owner()

    for model in ("live", "files"):
        assert desk.models.of(owner, model) is not desk.models.of(healthy, model)
    assert desk.models.of(owner, "apart") is desk.models.of(healthy, "apart")


def test_without_a_name_the_first_model_serves(desk: Desk) -> None:
    assert desk.models.of(Owner()) is desk.models.of(Owner(), "live") is desk.models.usual


def test_audio_that_waits_is_that_of_all_models(desk: Desk) -> None:
    desk.call()()

    assert desk.models.undecoded_age_s() == 0.0
    assert desk.models.held_s() == {}  # a stream that no partition opened
    assert np.sum(list(desk.engines[0].runnable_samples().values())) == 16_000


def test_all_processes_end_with_the_worker(desk: Desk) -> None:
    desk.models.close()

    assert desk.process.closed
    assert all(child.closed for child in desk.children)
