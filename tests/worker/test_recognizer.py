"""Every output of the engine goes to the one who asked, and to nobody after it was dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from tests.support.lanes import Clock
from worker.options import SessionOptions
from worker.recognizer import Recognizer
from worker.segments import SegmentInfo
from worker.streams import MessageContext

BEAM = DecodingOptions(search="prefix_beam", n_best=3)


class FakeEngine:
    """An engine that says what the test lays out."""

    def __init__(self) -> None:
        self.streams: dict[str, int] = {}
        self.decoding: dict[str, DecodingOptions] = {}
        self.tenants: list[str] = []
        self.fed: list[tuple[str, int, bool, int | None]] = []
        self.offline: list[Request] = []
        self.aborted: list[str] = []
        self.outputs: list[RequestOutput] = []
        self.runnable: dict[str, int] = {}
        self.has_work = False

    def add_streaming_request(
        self, request_id: str, priority: int, decoding: DecodingOptions, tenant: str
    ) -> str:
        self.streams[request_id] = priority
        self.tenants.append(tenant)
        self.decoding[request_id] = decoding
        return request_id

    def feed_chunk(
        self, request_id: str, samples: Any, is_last: bool, keep_samples: int | None
    ) -> None:
        self.fed.append((request_id, len(samples), is_last, keep_samples))

    def add_request(self, request: Request) -> str:
        self.offline.append(request)
        return request.request_id

    def abort_request(self, request_id: str) -> bool:
        self.aborted.append(request_id)
        return True

    def runnable_samples(self) -> dict[str, int]:
        return self.runnable

    def step(self) -> list[RequestOutput]:
        outputs, self.outputs = self.outputs, []
        return outputs


class Listener:
    """A segment, as far as outputs go."""

    def __init__(self, decoding: DecodingOptions, tenant: str) -> None:
        self.heard: list[RequestOutput] = []
        self.receive = self.heard.append
        options = SessionOptions(decoding=decoding, tenant=tenant)
        context = replace(MessageContext.nothing(0), options=options)
        self.info = SegmentInfo(0, 0, 0, 8000, context, 0)


class Bench:
    def __init__(self) -> None:
        self.engine, self.clock = FakeEngine(), Clock()
        self.recognizer = Recognizer(self.engine, self.clock)  # type: ignore[arg-type]

    def open(
        self,
        partition: int = 0,
        priority: int = 0,
        decoding: DecodingOptions | None = None,
        tenant: str = "",
    ) -> tuple[str, Listener]:
        listener = Listener(decoding or DecodingOptions(), tenant)
        return self.recognizer.open(listener, priority, partition), listener  # type: ignore[arg-type]

    def say(self, request_id: str, finished: bool = False) -> RequestOutput:
        reason = "stop" if finished else None
        output = RequestOutput(request_id, "text", finished=finished, finish_reason=reason)
        self.engine.outputs.append(output)
        return output


def test_outputs_reach_the_segment_that_asked() -> None:
    bench = Bench()
    first, first_listener = bench.open()
    second, second_listener = bench.open()
    said = [bench.say(second), bench.say(first), bench.say(second, finished=True)]

    bench.recognizer.step()

    assert first != second
    assert first_listener.heard == [said[1]]
    assert second_listener.heard == [said[0], said[2]]
    assert bench.recognizer.open_requests == 1


def test_a_finished_request_hears_nothing_more() -> None:
    bench = Bench()
    request_id, listener = bench.open()
    bench.say(request_id, finished=True)
    bench.recognizer.step()
    bench.say(request_id)
    bench.recognizer.step()

    assert len(listener.heard) == 1
    assert bench.recognizer.open_requests == 0


def test_a_dropped_request_is_aborted_and_hears_nothing() -> None:
    bench = Bench()
    request_id, listener = bench.open(partition=3)
    bench.engine.runnable = {request_id: 16_000}
    bench.recognizer.drop(request_id)
    bench.recognizer.drop(request_id)
    bench.say(request_id, finished=True)
    bench.recognizer.step()

    assert bench.engine.aborted == [request_id]
    assert listener.heard == []
    assert bench.recognizer.held_s() == {}


def test_audio_and_its_end_reach_the_engine() -> None:
    bench = Bench()
    request_id, _ = bench.open(priority=4)
    nothing, some = np.zeros(0, np.float32), np.zeros(5, np.float32)

    bench.recognizer.feed(request_id, some, None, last=False)
    bench.recognizer.feed(request_id, nothing, None, last=False)  # says nothing
    bench.recognizer.feed(request_id, nothing, 800, last=True)

    assert bench.engine.streams == {request_id: 4}
    assert bench.engine.fed == [(request_id, 5, False, None), (request_id, 0, True, 800)]


def test_what_is_kept_is_only_said_with_the_end() -> None:
    bench = Bench()
    request_id, _ = bench.open()
    bench.recognizer.feed(request_id, np.zeros(5, np.float32), 800, last=False)

    assert bench.engine.fed == [(request_id, 5, False, None)]


def test_the_tenant_of_a_message_is_that_of_its_requests() -> None:
    bench = Bench()
    bench.open(tenant="acme")
    bench.open()

    bench.recognizer.transcribe(np.zeros(800, np.float32), 0, BEAM, lambda _output: None, "acme")

    assert bench.engine.tenants == ["acme", ""]
    assert [request.tenant for request in bench.engine.offline] == ["acme"]


def test_a_window_of_a_file_is_one_request() -> None:
    bench = Bench()
    heard: list[RequestOutput] = []
    audio = np.zeros(800, np.float32)

    request_id = bench.recognizer.transcribe(audio, 7, BEAM, heard.append)
    said = bench.say(request_id, finished=True)
    bench.recognizer.step()

    (request,) = bench.engine.offline
    assert (request.request_id, request.priority, len(request.audio)) == (request_id, 7, 800)
    assert heard == [said]


def test_runnable_audio_is_counted_by_partition_and_without_files() -> None:
    bench = Bench()
    first, _ = bench.open(partition=1)
    second, _ = bench.open(partition=1)
    third, _ = bench.open(partition=2)
    window = bench.recognizer.transcribe(np.zeros(800, np.float32), 0, BEAM, lambda _output: None)
    bench.engine.runnable = {first: 8000, second: 16_000, third: 4000, window: 99}

    assert bench.recognizer.held_s() == {1: 1.5, 2: 0.25}


def test_undecoded_audio_is_as_old_as_the_stream_that_waits_longest() -> None:
    bench = Bench()
    first, _ = bench.open(partition=1)
    second, _ = bench.open(partition=1)
    assert bench.recognizer.undecoded_age_s() == 0
    bench.recognizer.feed(first, np.zeros(800, np.float32), None, False)
    bench.clock.now += 2
    bench.recognizer.feed(second, np.zeros(800, np.float32), None, False)
    bench.engine.runnable = {first: 800, second: 800}
    assert bench.recognizer.undecoded_age_s() == 2

    bench.engine.runnable = {second: 800}
    bench.clock.now += 1
    assert bench.recognizer.undecoded_age_s() == 1
    bench.recognizer.drop(second)
    assert bench.recognizer.undecoded_age_s() == 0


@pytest.mark.parametrize("has_work", [True, False])
def test_it_has_work_when_the_engine_has(has_work: bool) -> None:
    bench = Bench()
    bench.engine.has_work = has_work

    assert bench.recognizer.has_work is has_work
