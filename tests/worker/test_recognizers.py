"""Whose owners keep dying, that partition's requests run in a child process, and no other's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from oasr.engine.request import RequestOutput
from oasr.engine.stats import StepStats
from tests.support.lanes import Clock
from worker.commits import ISOLATED_FROM
from worker.recognizers import PartitionSpeech, Recognizers, is_isolated
from worker.segments import SegmentInfo
from worker.streams import MessageContext


class FakeEngine:
    """An engine that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.outputs: list[RequestOutput] = []
        self.runnable: dict[str, int] = {}
        self.has_work = False
        self.stats = StepStats(streams=3)
        self.closed = False

    def add_streaming_request(self, request_id: str, **_rest: object) -> None:
        self.asked.append(("open", request_id))

    def feed_chunk(self, request_id: str, samples: Any, **_rest: object) -> None:
        self.asked.append(("feed", request_id, len(samples)))

    def abort_request(self, request_id: str) -> None:
        self.asked.append(("abort", request_id))

    def runnable_samples(self) -> dict[str, int]:
        return self.runnable

    def step(self) -> list[RequestOutput]:
        self.asked.append(("step",))
        outputs, self.outputs = self.outputs, []
        return outputs

    def close(self) -> None:
        self.closed = True


class Listener:
    """A segment, as far as outputs go."""

    def __init__(self) -> None:
        self.heard: list[RequestOutput] = []
        self.receive = self.heard.append
        context = replace(MessageContext.nothing(0))
        self.info = SegmentInfo(0, 0, 0, 8000, context, 0)


@dataclass
class Owner:
    number: int = 3
    start_counter: int = 1


class Bench:
    def __init__(self) -> None:
        self.engine, self.child, self.clock = FakeEngine(), FakeEngine(), Clock()
        self.recognizers = Recognizers(self.engine, self.child, self.clock)  # type: ignore[arg-type]
        self.owner = Owner()
        self.speech = PartitionSpeech(self.recognizers, self.owner)
        self.listener = Listener()

    def open(self) -> str:
        return self.speech.open(self.listener, 0)  # type: ignore[arg-type]

    def feed(self, request_id: str, samples: int = 5) -> None:
        self.speech.feed(request_id, np.zeros(samples, np.float32), None, False)


@pytest.mark.parametrize(
    ("starts", "apart"), [(0, False), (1, False), (ISOLATED_FROM - 1, False), (ISOLATED_FROM, True)]
)
def test_the_fifth_owner_in_a_row_decodes_in_a_child(starts: int, apart: bool) -> None:
    bench = Bench()
    bench.owner.start_counter = starts

    request_id = bench.open()
    bench.feed(request_id)
    bench.speech.drop(request_id)

    asked, not_asked = (bench.child, bench.engine) if apart else (bench.engine, bench.child)
    assert asked.asked == [("open", request_id), ("feed", request_id, 5), ("abort", request_id)]
    assert not_asked.asked == []
    assert is_isolated(bench.owner) is apart


def test_a_request_stays_where_it_was_opened_when_its_partition_has_proved_itself() -> None:
    bench = Bench()
    bench.owner.start_counter = ISOLATED_FROM
    before = bench.open()
    bench.owner.start_counter = 0
    after = bench.open()
    bench.feed(before)
    bench.feed(after)

    assert before != after
    assert bench.child.asked == [("open", before), ("feed", before, 5)]
    assert bench.engine.asked == [("open", after), ("feed", after, 5)]


def test_outputs_of_both_reach_their_segments() -> None:
    bench = Bench()
    direct = bench.open()
    bench.owner.start_counter = ISOLATED_FROM
    apart = bench.open()
    bench.engine.has_work = True
    bench.engine.outputs = [RequestOutput(direct, "here")]
    bench.child.outputs = [RequestOutput(apart, "there")]

    assert bench.recognizers.step() is bench.engine.stats

    assert [output.text for output in bench.listener.heard] == ["there", "here"]


def test_a_step_of_the_child_alone_is_none_of_the_engine_here() -> None:
    bench = Bench()
    bench.child.has_work = True

    assert bench.recognizers.has_work
    assert bench.recognizers.step() is None

    assert ("step",) not in bench.engine.asked


def test_audio_that_the_child_has_not_answered_for_counts_too() -> None:
    bench = Bench()
    direct = bench.open()
    bench.owner.start_counter = ISOLATED_FROM
    apart = bench.open()
    bench.engine.runnable = {direct: 16_000}
    bench.child.runnable = {apart: 8_000}

    assert bench.recognizers.held_s() == {3: 1.5}
    speech = PartitionSpeech(bench.recognizers, bench.owner)
    speech.feed(apart, np.zeros(8_000, np.float32), None, False)
    bench.clock.now += 2
    bench.engine.runnable = {}
    assert bench.recognizers.undecoded_age_s() == 2


def test_closing_ends_the_child() -> None:
    bench = Bench()
    bench.recognizers.close()

    assert bench.child.closed
    assert not bench.engine.closed
