"""A turn is Kafka in, one step, Kafka out, commit; leaving has an order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.support.lanes import Clock
from worker.loop import FINAL_FLUSH_S, IDLE_POLL_S, Loop, Machinery


class Stage:
    """All parts of the machinery; writes down who was called, in order."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.clock = Clock()
        self.running_jobs = 0
        self.has_work = False
        self.stats: str | None = "stats"
        self.joined = False
        self.reads_calls = True
        self.on_work: Callable[[], None] = lambda: None
        self.health = SimpleNamespace(joined=False, draining=False, turned=self.note("turned"))

    def note(self, name: str) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            self.calls.append((name, *arguments) if arguments else name)

        return call

    def machinery(self) -> Machinery:
        stage = self

        class Files:
            poll = staticmethod(self.note("files.poll"))
            tick = staticmethod(self.note("files.tick"))
            drain = staticmethod(self.note("files.drain"))
            close = staticmethod(self.note("files.close"))

            @property
            def running_jobs(self) -> int:
                stage.on_work()
                return stage.running_jobs

        class Recognizer:
            close = staticmethod(self.note("recognizer.close"))
            held_s = staticmethod(dict)

            @property
            def has_work(self) -> bool:
                return stage.has_work

            def step(self) -> list[str]:
                stage.calls.append("step")
                return [] if stage.stats is None else [stage.stats]

        chunks = SimpleNamespace(
            is_read=self.reads_calls,
            poll=self.note("chunks.poll"),
            tick=lambda _held, busy: self.calls.append(("chunks.tick", busy)),
            close=self.note("chunks.close"),
        )
        sink = SimpleNamespace(
            poll=self.note("sink.poll"), flush=self.note("flush"), close=self.note("sink.close")
        )
        gauges = SimpleNamespace(update=self.note("gauges"), stepped=self.note("stepped"))
        return Machinery(
            chunks=chunks,  # type: ignore[arg-type]
            files=Files(),  # type: ignore[arg-type]
            recognizer=Recognizer(),  # type: ignore[arg-type]
            sink=sink,  # type: ignore[arg-type]
            health=self.health,  # type: ignore[arg-type]
            gauges=gauges,  # type: ignore[arg-type]
            joined=lambda: self.joined,
            now=self.clock,
        )


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_turn_with_work_makes_one_step_and_does_not_wait(stage: Stage) -> None:
    stage.has_work = True
    Loop(stage.machinery(), 1.0).turn()

    assert stage.calls == [
        ("chunks.poll", 0),
        ("files.poll", 0.0),
        "step",
        ("stepped", "stats"),
        "sink.poll",
        "files.tick",
        "turned",
        ("chunks.tick", True),
        "gauges",
    ]


def test_an_idle_turn_waits_for_the_next_message_and_makes_no_step(stage: Stage) -> None:
    Loop(stage.machinery(), 1.0).turn()

    assert stage.calls[0] == ("chunks.poll", IDLE_POLL_S)
    assert "step" not in stage.calls


def test_a_worker_that_reads_files_alone_waits_for_those(stage: Stage) -> None:
    stage.reads_calls = False
    loop = Loop(stage.machinery(), 1.0)
    loop.turn()
    stage.has_work = True
    loop.turn()

    polls = [call for call in stage.calls if isinstance(call, tuple) and "poll" in str(call[0])]
    assert polls == [("files.poll", IDLE_POLL_S), ("files.poll", 0.0)]


def test_health_hears_when_both_consumers_have_joined(stage: Stage) -> None:
    loop = Loop(stage.machinery(), 1.0)
    loop.turn()
    assert not stage.health.joined

    stage.joined = True
    loop.turn()
    assert stage.health.joined


def test_live_calls_are_handed_over_at_once_and_file_jobs_may_finish(stage: Stage) -> None:
    stage.running_jobs = 1

    def work() -> None:
        stage.clock.now += 1
        stage.running_jobs = int(stage.clock.now < 103)

    stage.on_work = work
    loop = Loop(stage.machinery(), 60.0)
    loop.stop()
    loop.run()

    assert stage.health.draining
    assert stage.calls[:2] == ["chunks.close", "files.drain"]
    assert stage.calls[-4:] == [
        ("flush", FINAL_FLUSH_S),
        "files.close",
        "sink.close",
        "recognizer.close",
    ]
    turns = stage.calls[2:-4]
    assert turns == [("files.poll", IDLE_POLL_S), "sink.poll", "files.tick", "turned"] * 2


def test_file_jobs_that_take_too_long_are_handed_over(stage: Stage) -> None:
    stage.running_jobs = 1

    def work() -> None:
        stage.clock.now += 1

    stage.on_work = work
    loop = Loop(stage.machinery(), 5.0)
    loop.stop()
    loop.run()

    assert stage.calls.count(("files.poll", 0.0)) < 6
    assert stage.calls[-3] == "files.close"


def test_it_turns_until_it_is_told_to_stop(stage: Stage) -> None:
    machinery = stage.machinery()
    loop = Loop(machinery, 1.0)
    turns = 0

    def turned() -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            loop.stop()

    stage.health.turned = turned
    loop.run()

    assert turns == 3
    assert "chunks.close" in stage.calls
