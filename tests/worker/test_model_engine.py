"""A model in a process of its own: the same answers, whatever happens to the process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

import numpy as np
import pytest

from oasr.decoding.options import DecodingOptions, Hotword
from oasr.engine.engine import ASREngine
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.errors import ModelError, OptionError
from tests.support.engine import make_engine, noise, terminal, tiny_model
from tests.support.lanes import Clock
from tests.support.poison import DEADLY, DigestModel, digest
from worker.engine_process import CRASHED
from worker.isolated_engine import MOST_FAILED_STARTS, START_LIMIT_S
from worker.model_engine import ModelEngine
from worker.model_process import (
    Budget,
    Description,
    Forget,
    ModelProcess,
    Stepped,
    Told,
    Unusable,
    Utterance,
)
from worker.producer import FatalClientError

LIMIT_S = 60.0
UNSPELLABLE = DecodingOptions("prefix_beam", hotwords=(Hotword("☃"),))


class Bench:
    """A model's engine and all its processes."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self.processes: list[Any] = []
        self.deaths = 0
        self.clock = Clock()
        self.outputs: list[RequestOutput] = []
        self._new = start
        self.engine = ModelEngine(self._start, self.clock, self._died, step_limit_s=100.0)

    def _start(self) -> Any:
        self.processes.append(self._new())
        return self.processes[-1]

    def _died(self) -> None:
        self.deaths += 1

    def ask(self, **audio: Any) -> None:
        for name, samples in audio.items():
            self.engine.add_request(Request(samples, name))

    def step(self) -> None:
        self.outputs += self.engine.step()

    def run(self, finished: int) -> dict[str, RequestOutput]:
        """The terminal outputs, once there are so many."""
        deadline = time.monotonic() + LIMIT_S
        while len(terminal(self.outputs)) < finished:
            assert time.monotonic() < deadline, "it did not come"
            if self.engine.has_work:
                self.step()
            else:
                wait([self.processes[-1].connection], 1.0)
        return terminal(self.outputs)


class Scripted:
    """A process that does what a test says."""

    def __init__(self) -> None:
        self.connection, self._theirs = Pipe()
        self.told: list[Told] = []
        self.tell = self.told.append
        self.exit_status = -9

    @property
    def names(self) -> list[str]:
        return [told.request_id for told in self.told if isinstance(told, Utterance)]

    def describe(self) -> None:
        model = DigestModel()
        self._theirs.send(Description(model.model_info, model.capabilities, DecodingOptions.check))

    def answer(self, *names: str) -> None:
        outputs = [RequestOutput(n, n, finished=True, finish_reason="stop") for n in names]
        self._theirs.send(Stepped(outputs, StepStats(step_s=0.5)))

    def refuse(self) -> None:
        self._theirs.send(Unusable("no model.bin"))

    def die(self) -> None:
        self._theirs.close()

    def kill(self) -> None:
        self._theirs.close()
        self.connection.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Its processes are scripted."""
    found = Bench(Scripted)
    yield found
    found.engine.close()


def ready(bench: Bench) -> Scripted:
    """The process that runs, once it knows its model and was told what there is."""
    bench.step()
    process: Scripted = bench.processes[-1]
    process.describe()
    bench.step()
    return process


def speech(samples: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def poison(samples: int) -> Any:
    audio = speech(samples, 99)
    audio[samples // 2] = 1.1 * DEADLY
    return audio


class BudgetedModel(DigestModel):
    """Adds to what it hears under which budget it does."""

    def step(self) -> list[RequestOutput]:
        budget = f"{os.nice(0)} {sorted(os.sched_getaffinity(0))}"
        return [replace(output, text=f"{output.text} {budget}") for output in super().step()]


def test_the_one_that_kills_its_process_is_found_among_many_and_no_other_is_lost() -> None:
    core = min(os.sched_getaffinity(0))
    budget = f"{min(19, os.nice(0) + 7)} [{core}]"
    bench = Bench(lambda: ModelProcess(BudgetedModel, Budget(nice=7, cpus=(core,))))
    audio = {f"w{n}": speech(200_000, n) for n in range(5)}
    try:
        bench.engine.begin()
        bench.ask(**audio, deadly=poison(5_000))
        found = bench.run(6)
    finally:
        bench.engine.close()

    assert found.pop("deadly").error_stage == CRASHED
    assert {name: output.text for name, output in found.items()} == {
        name: f"{digest(samples)} {budget}" for name, samples in audio.items()
    }
    assert bench.deaths == 2
    assert len([output for output in bench.outputs if output.finished]) == 6


def real_engine() -> ASREngine:
    return make_engine(tiny_model(), max_wait_time=10.0)


def test_a_real_model_says_the_same_and_describes_itself() -> None:
    direct = make_engine(tiny_model(), max_wait_time=10.0)
    bench = Bench(lambda: ModelProcess(real_engine, Budget()))
    audio = {f"w{n}": noise(24_000 + 7_000 * n, n) for n in range(3)}
    refused = Request(noise(8_000, 5), "refused", decoding=UNSPELLABLE)
    try:
        described = bench.engine.begin()
        bench.ask(**audio)
        bench.engine.add_request(refused)
        found = bench.run(4)
    finally:
        bench.engine.close()
    for name, samples in audio.items():
        direct.add_request(Request(samples, name))

    assert found.pop("refused").error_stage == "options"
    assert {name: o.tokens for name, o in found.items()} == {
        name: o.tokens for name, o in terminal(direct.run()).items()
    }
    assert (described.info, described.capabilities) == (direct.model_info, direct.capabilities)
    for check in (described.check, direct.check_decoding):
        check(DecodingOptions("prefix_beam", 4))
        with pytest.raises(OptionError, match="hotwords"):
            check(UNSPELLABLE)


def test_cores_that_are_not_there_stop_the_start_with_their_numbers() -> None:
    bench = Bench(lambda: ModelProcess(DigestModel, Budget(cpus=(4_000,))))

    with pytest.raises(ModelError, match="4000"):
        bench.engine.begin()
    bench.engine.close()


def test_all_that_comes_is_told_at_once_and_each_answer_goes_to_who_asked(bench: Bench) -> None:
    bench.ask(a=speech(10), b=speech(20))
    process = ready(bench)
    bench.ask(c=speech(30))
    assert bench.engine.has_work
    bench.step()

    process.answer("c", "a")
    process.answer("b")

    assert process.names == ["a", "b", "c"]
    assert set(bench.run(3)) == {"a", "b", "c"}
    assert [stats.step_s for stats in bench.engine.stats] == [0.5, 0.5]
    assert not bench.engine.has_work


def test_after_a_death_what_the_process_held_is_told_one_by_one_before_all_else(
    bench: Bench,
) -> None:
    bench.ask(a=speech(10), b=speech(20), c=speech(30))
    first = ready(bench)
    first.answer("a")
    first.die()
    bench.step()
    bench.ask(d=speech(40))
    second = ready(bench)
    assert second.names == ["b"]
    second.answer("b")
    bench.step()
    assert second.names == ["b", "c"]
    second.die()
    bench.step()
    third = ready(bench)

    assert third.names == ["d"]
    assert terminal(bench.outputs)["c"].error_stage == CRASHED
    assert set(terminal(bench.outputs)) == {"a", "b", "c"}
    assert bench.deaths == 2


def test_one_that_is_silent_over_a_batch_for_too_long_counts_as_dead(bench: Bench) -> None:
    bench.ask(a=speech(10))
    process = ready(bench)
    bench.clock.now += 99
    assert not bench.engine.has_work
    process.answer()
    bench.step()
    bench.clock.now += 99
    assert not bench.engine.has_work
    bench.clock.now += 2
    assert bench.engine.has_work
    bench.step()

    assert bench.deaths == 1
    assert ready(bench).names == ["a"]


def test_one_that_has_nothing_to_do_may_be_silent_for_ever(bench: Bench) -> None:
    bench.ask(a=speech(10))
    ready(bench).answer("a")
    bench.step()

    bench.clock.now += 1e6

    assert not bench.engine.has_work
    bench.ask(b=speech(10))
    bench.step()
    assert not bench.engine.has_work
    assert bench.deaths == 0


def test_what_is_not_wanted_any_more_is_not_heard_of(bench: Bench) -> None:
    bench.ask(a=speech(10), b=speech(20))
    process = ready(bench)
    bench.ask(c=speech(30))
    assert bench.engine.abort_request("a")
    assert bench.engine.abort_request("c")
    assert not bench.engine.abort_request("a")
    bench.step()
    process.answer("a", "b")

    assert set(bench.run(1)) == {"b"}
    assert process.told[2:] == [Forget("a")]


def test_a_process_that_dies_while_it_loads_is_tried_again_and_then_fatal(bench: Bench) -> None:
    bench.ask(a=speech(10))
    for _ in range(MOST_FAILED_STARTS - 1):
        bench.step()
        bench.processes[-1].die()
        bench.step()
    bench.step()
    bench.processes[-1].die()

    with pytest.raises(FatalClientError, match="does not start"):
        bench.step()

    assert bench.deaths == len(bench.processes) == MOST_FAILED_STARTS


def test_one_that_loads_for_too_long_counts_as_dead(bench: Bench) -> None:
    bench.ask(a=speech(10))
    bench.step()
    bench.clock.now += START_LIMIT_S + 1
    assert bench.engine.has_work
    bench.step()

    assert bench.deaths == 1
    assert ready(bench).names == ["a"]


def test_a_model_that_was_served_and_cannot_be_any_more_ends_the_worker(bench: Bench) -> None:
    bench.ask(a=speech(10))
    ready(bench).die()
    bench.step()
    bench.step()
    bench.processes[-1].refuse()

    with pytest.raises(FatalClientError, match=r"no model\.bin"):
        bench.step()


def test_live_calls_are_refused(bench: Bench) -> None:
    with pytest.raises(OptionError):
        bench.engine.add_streaming_request("s")
