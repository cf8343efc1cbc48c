"""An engine in a child process: the same answers, whatever happens to the process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any

import numpy as np
import pytest

from oasr.decoding.options import DecodingOptions
from oasr.engine.engine import ASREngine
from oasr.engine.request import Request, RequestOutput
from tests.support.engine import make_engine, noise, terminal, tiny_model
from tests.support.lanes import Clock
from tests.support.poison import DEADLY, STOPPING, DigestEngine, Stillborn, digest
from worker.engine_process import CRASHED, Command, SpawnedChild
from worker.isolated_engine import (
    ANSWER_LIMIT_S,
    MOST_FAILED_STARTS,
    MOST_ON_THE_WAY,
    PIECE_SAMPLES,
    START_LIMIT_S,
    IsolatedEngine,
)
from worker.producer import FatalClientError

LIMIT_S = 60.0


class Bench:
    """An isolated engine and all its processes."""

    def __init__(self, make: Callable[[], Any] = DigestEngine) -> None:
        self.children: list[SpawnedChild] = []
        self.deaths = 0
        self.clock = Clock()
        self.outputs: list[RequestOutput] = []
        self._make = make
        self.engine = IsolatedEngine(self._start, self.clock, self._died)

    def _start(self) -> SpawnedChild:
        self.children.append(SpawnedChild(self._make))
        return self.children[-1]

    def _died(self) -> None:
        self.deaths += 1

    def run_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < deadline, "it did not come"
            if self.engine.has_work:
                self.outputs += self.engine.step()
            else:
                wait([self.children[-1].connection], 1.0)

    def run(self, finished: int) -> dict[str, RequestOutput]:
        """The terminal outputs, once there are so many."""
        self.run_until(lambda: len(terminal(self.outputs)) >= finished)
        return terminal(self.outputs)


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.engine.close()


def speech(samples: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, samples).astype(np.float32)


def poison(samples: int, at: float = DEADLY) -> Any:
    audio = speech(samples, 99)
    audio[samples // 2] = 1.1 * at
    return audio


def stream(engine: IsolatedEngine, name: str, audio: Any, pieces: int = 4) -> None:
    engine.add_streaming_request(name)
    *parts, last = np.array_split(audio, pieces)
    for part in parts:
        engine.feed_chunk(name, part)
    engine.feed_chunk(name, last, is_last=True, keep_samples=100)


def test_it_hears_exactly_the_audio_and_says_so_once(bench: Bench) -> None:
    audio = {f"s{n}": speech(5_000 + 9_000 * n, n) for n in range(4)}
    for name, samples in audio.items():
        stream(bench.engine, name, samples)
    bench.engine.add_request(Request(speech(30_000), "file"))

    found = bench.run(5)

    assert {name: o.text for name, o in found.items()} == {
        **{name: digest(samples, 100) for name, samples in audio.items()},
        "file": digest(speech(30_000)),
    }
    assert bench.deaths == 0
    assert len(bench.children) == 1


def test_a_real_engine_says_the_same_in_a_process_of_its_own() -> None:
    direct = make_engine(tiny_model(), max_wait_time=10.0)
    bench = Bench(real_engine)
    audio = [noise(24_000 + 7_000 * n, n) for n in range(3)]
    try:
        for n, samples in enumerate(audio):
            for engine in (direct, bench.engine):
                engine.add_streaming_request(f"s{n}", decoding=DecodingOptions())
                for part in np.array_split(samples, 5):
                    engine.feed_chunk(f"s{n}", part)
                engine.feed_chunk(f"s{n}", samples[:0], is_last=True)

        found = bench.run(3)
    finally:
        bench.engine.close()

    expected = terminal(direct.run())
    assert {name: (o.tokens, o.decoded_samples) for name, o in found.items()} == {
        name: (o.tokens, o.decoded_samples) for name, o in expected.items()
    }
    assert any(o.tokens for o in found.values())


def real_engine() -> ASREngine:
    return make_engine(tiny_model(), max_wait_time=10.0)


def test_a_request_that_kills_the_process_twice_fails_and_its_neighbours_do_not(
    bench: Bench,
) -> None:
    audio = {f"s{n}": speech(20_000, n) for n in range(3)}
    stream(bench.engine, "s0", audio["s0"])
    bench.engine.add_streaming_request("open")
    bench.engine.feed_chunk("open", speech(500))
    stream(bench.engine, "bad", poison(20_000))
    stream(bench.engine, "s1", audio["s1"])
    stream(bench.engine, "s2", audio["s2"])

    found = bench.run(4)
    bench.engine.feed_chunk("open", speech(500), is_last=True)
    found = bench.run(5)

    assert found.pop("bad") == RequestOutput(
        "bad", finished=True, finish_reason="error", error_stage=CRASHED
    )
    assert found.pop("open").text == digest(np.concatenate([speech(500), speech(500)]))
    assert {name: o.text for name, o in found.items()} == {
        name: digest(samples, 100) for name, samples in audio.items()
    }
    assert bench.deaths == 2
    assert [child.exit_status for child in bench.children[:2]] == [-11, -11]


def test_what_follows_of_a_request_that_failed_is_nobodys(bench: Bench) -> None:
    bench.engine.add_streaming_request("bad")
    bench.engine.feed_chunk("bad", poison(100))
    bench.run(1)

    bench.engine.feed_chunk("bad", speech(100), is_last=True)
    stream(bench.engine, "good", speech(100))

    assert bench.run(2)["good"].text == digest(speech(100), 100)
    assert not bench.engine.abort_request("bad")


def test_a_window_of_a_file_that_kills_the_process_twice_fails(bench: Bench) -> None:
    bench.engine.add_request(Request(poison(30_000), "bad"))
    bench.engine.add_request(Request(speech(30_000), "good"))

    found = bench.run(2)

    assert found["bad"].error_stage == CRASHED
    assert found["good"].text == digest(speech(30_000))


def test_a_process_that_hangs_is_ended_and_its_request_blamed(bench: Bench) -> None:
    bench.engine.add_streaming_request("stops")
    bench.engine.feed_chunk("stops", speech(50))
    bench.engine.feed_chunk("stops", poison(100, STOPPING))
    stream(bench.engine, "good", speech(100))
    for death in (1, 2):
        bench.run_until(lambda death=death: [o.text for o in bench.outputs] == ["50"] * death)
        bench.clock.now += ANSWER_LIMIT_S + 1
        bench.run_until(lambda death=death: bench.deaths == death)

    found = bench.run(2)
    assert found["stops"].error_stage == CRASHED
    assert found["good"].finish_reason == "stop"


def test_a_dropped_request_says_nothing_and_is_not_told_to_the_next_process(bench: Bench) -> None:
    bench.engine.add_streaming_request("gone")
    bench.engine.feed_chunk("gone", poison(100))
    stream(bench.engine, "good", speech(100))

    assert bench.engine.abort_request("gone")
    assert not bench.engine.abort_request("gone")

    assert set(bench.run(1)) == {"good"}
    assert bench.deaths == 0


def test_audio_counts_as_undecoded_until_the_process_has_answered(bench: Bench) -> None:
    bench.engine.add_streaming_request("a")
    bench.engine.feed_chunk("a", speech(700))
    bench.engine.feed_chunk("a", speech(300))
    assert bench.engine.runnable_samples() == {"a": 1000}

    bench.run_until(lambda: not bench.engine.runnable_samples())

    assert [o.text for o in bench.outputs] == ["700", "1000"]


def test_what_is_on_its_way_always_fits_in_the_pipe() -> None:
    child = DeafChild()
    engine = IsolatedEngine(lambda: child, Clock())
    child.connection.answers.append("ready")
    for n in range(40):
        stream(engine, f"s{n}", speech(3 * PIECE_SAMPLES), pieces=1)

    for _ in range(5):
        engine.step()

    assert 0 < len(child.connection.sent) <= MOST_ON_THE_WAY
    assert sum(command.size_bytes for command in child.connection.sent) <= 64 * 1024
    assert not engine.has_work


class DeafChild:
    """A process that never answers, but for what the test lays out."""

    exit_status = None

    def __init__(self) -> None:
        self.connection: Any = DeafConnection()

    def kill(self) -> None: ...


class DeafConnection:
    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.answers: list[Any] = []

    def poll(self, timeout: float) -> bool:
        assert timeout == 0
        return bool(self.answers)

    def recv(self) -> Any:
        return self.answers.pop(0)

    def send(self, command: Command) -> None:
        self.sent.append(command)


def test_a_process_that_never_starts_ends_the_worker_with_one_clear_line() -> None:
    bench = Bench(Stillborn)
    stream(bench.engine, "a", speech(100))

    with pytest.raises(FatalClientError, match="does not start: it ended with status 3"):
        bench.run(1)

    assert bench.deaths == len(bench.children) == MOST_FAILED_STARTS


def test_a_process_whose_model_never_loads_ends_the_worker_too() -> None:
    clock = Clock()
    engine = IsolatedEngine(DeafChild, clock)
    stream(engine, "a", speech(100))

    for _ in range(MOST_FAILED_STARTS - 1):
        engine.step()
        clock.now += START_LIMIT_S + 1
        engine.step()
    engine.step()
    clock.now += START_LIMIT_S + 1
    with pytest.raises(FatalClientError, match="did not answer"):
        engine.step()


def test_no_process_is_started_before_it_is_needed(bench: Bench) -> None:
    assert not bench.engine.has_work
    assert bench.engine.step() == []
    assert not bench.engine.is_running


def test_closing_ends_the_process_and_forgets_what_is_open(bench: Bench) -> None:
    stream(bench.engine, "a", speech(100))
    bench.engine.step()

    bench.engine.close()

    assert not bench.engine.is_running
    assert not bench.engine.has_work
    assert bench.children[0].exit_status is not None


@pytest.mark.parametrize("seed", range(3))
def test_every_request_has_one_end_over_any_interleaving_of_streams(
    bench: Bench, seed: int
) -> None:
    rng = random.Random(seed)
    audio = {f"s{n}": speech(rng.randint(1, 3 * PIECE_SAMPLES), n) for n in range(8)}
    bad = set(rng.sample(sorted(audio), 2))
    for name in bad:
        audio[name][rng.randrange(len(audio[name]))] = 1.0
    left = {name: list(np.array_split(a, rng.randint(1, 4))) for name, a in audio.items()}
    for name in left:
        bench.engine.add_streaming_request(name)
    while left:
        name = rng.choice(sorted(left))
        part = left[name].pop(0)
        if not left[name]:
            del left[name]
        bench.engine.feed_chunk(name, part, is_last=name not in left)
        if rng.random() < 0.3:
            bench.outputs += bench.engine.step()

    found = bench.run(len(audio))

    assert {name for name, o in found.items() if o.error_stage == CRASHED} == bad
    for name in audio.keys() - bad:
        assert found[name].text == digest(audio[name])
