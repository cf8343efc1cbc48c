"""A segment feeds one request and says each thing once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oasr.audio.segmenter import EndReason
from oasr.engine.request import RequestOutput
from tests.support.signals import speech
from worker.options import SessionOptions
from worker.segments import EDGES, Segment, SegmentInfo, SegmentState
from worker.streams import MessageContext


class Engine:
    """Remembers what one request was given."""

    def __init__(self) -> None:
        self.samples = 0
        self.kept: int | None = None
        self.last = 0
        self.dropped: list[str] = []
        self.priority: int | None = None

    def open(self, segment: Segment, priority: int) -> str:
        del segment
        self.priority = priority
        return "r"

    def feed(self, request_id: str, samples: Any, keep_samples: int | None, last: bool) -> None:
        assert request_id == "r"
        self.samples += len(samples)
        self.kept = keep_samples
        self.last += last

    def drop(self, request_id: str) -> None:
        self.dropped.append(request_id)


class Listener:
    def __init__(self) -> None:
        self.said: list[object] = []

    def partial(self, segment: Segment, revision: int) -> None:
        self.said.append((segment.text, revision))

    def decoded(self, segment: Segment) -> None:
        self.said.append(("decoded", segment.text, segment.failed))

    def failed(self, segment: Segment) -> None:
        self.said.append(("failed", segment.text))


class Bench:
    def __init__(self, start_sample: int = 1000, rate: int = 8000) -> None:
        self.engine, self.listener = Engine(), Listener()
        context = MessageContext.nothing(3)
        info = SegmentInfo(0, 0, start_sample, rate, context, first_offset=3)
        self.segment = Segment(info, self.engine, self.listener)

    def close(self, end_sample: int = 9000, reason: EndReason = EndReason.SILENCE) -> None:
        self.segment.close(end_sample, reason, last_offset=5, decided_timestamp_ms=77)

    def output(self, text: str = "a", reason: Any = None, decoded_samples: int = 0) -> None:
        self.segment.receive(
            RequestOutput(
                "r",
                text,
                finished=reason is not None,
                finish_reason=reason,
                decoded_samples=decoded_samples,
            )
        )


@pytest.mark.parametrize("rate", [8000, 16_000, 11_025])
def test_its_audio_reaches_the_engine_at_the_models_rate(rate: int) -> None:
    bench = Bench(rate=rate)
    samples = speech(1.0, rate)
    for part in np.array_split(samples, 7):
        bench.segment.feed(part)
    bench.close()

    assert bench.engine.samples == round(len(samples) * 16_000 / rate)
    assert bench.engine.last == 1
    assert bench.engine.priority == 0


def test_it_knows_where_it_ended_and_why() -> None:
    bench = Bench()
    bench.close(9000, EndReason.SILENCE)

    info = bench.segment.info
    assert (info.start_sample, info.end_sample, info.end_reason) == (1000, 9000, EndReason.SILENCE)
    assert (info.first_offset, info.last_offset, info.decided_timestamp_ms) == (3, 5, 77)


@pytest.mark.parametrize("reason", EndReason)
def test_only_a_cut_by_length_limits_what_is_kept(reason: EndReason) -> None:
    bench = Bench(start_sample=1000)
    bench.close(9000, reason)

    assert bench.engine.kept == (16_000 if reason is EndReason.MAX_LENGTH else None)


def test_partials_count_samples_at_the_media_rate() -> None:
    bench = Bench()
    bench.output("so", decoded_samples=3201)

    assert bench.listener.said == [("so", 1600)]


def test_it_is_decoded_once_it_is_closed_and_the_engine_is_done() -> None:
    bench = Bench()
    bench.close()
    assert bench.listener.said == []
    bench.output("so far", reason="stop")

    assert bench.listener.said == [("decoded", "so far", False)]
    assert bench.segment.state is SegmentState.DECODED


def test_a_failure_before_the_cut_is_told_and_the_cut_brings_what_there_is() -> None:
    bench = Bench()
    bench.output("half", reason="error")
    bench.segment.feed(speech(0.1))
    assert bench.listener.said == [("failed", "half")]
    assert bench.engine.samples == 0

    bench.close()
    assert bench.listener.said[1:] == [("decoded", "half", True)]
    assert bench.engine.last == 0


def test_a_failure_after_the_cut_is_the_end() -> None:
    bench = Bench()
    bench.close()
    bench.output("half", reason="error")

    assert bench.listener.said == [("decoded", "half", True)]


def test_a_dropped_segment_leaves_the_engine_and_is_silent() -> None:
    bench = Bench()
    bench.segment.drop()
    bench.output("late")
    bench.output("late", reason="stop")

    assert bench.engine.dropped == ["r"]
    assert bench.listener.said == []


def test_a_segment_that_the_engine_is_done_with_is_dropped_without_it() -> None:
    bench = Bench()
    bench.close()
    bench.output("so", reason="stop")
    bench.segment.drop()

    assert bench.engine.dropped == []
    assert bench.segment.state is SegmentState.DROPPED


def test_a_segment_that_is_done_stays_done() -> None:
    bench = Bench()
    bench.close()
    bench.output("so", reason="stop")
    bench.segment.move_to(SegmentState.DONE)
    bench.segment.drop()

    assert bench.segment.state is SegmentState.DONE


@pytest.mark.parametrize("state", SegmentState)
def test_only_the_edges_of_the_table_exist(state: SegmentState) -> None:
    bench = Bench()
    if state in EDGES[SegmentState.OPEN]:
        bench.segment.move_to(state)
        return
    with pytest.raises(RuntimeError, match="segment"):
        bench.segment.move_to(state)


def test_a_segment_cannot_be_closed_twice() -> None:
    bench = Bench()
    bench.close()

    with pytest.raises(RuntimeError, match="segment"):
        bench.close()


def test_only_stable_words_are_told_where_they_are_asked_for_and_each_text_once() -> None:
    bench = Bench()
    options = SessionOptions(min_stability=0.9)
    context = replace(bench.segment.info.context, options=options)
    bench.segment.info = replace(bench.segment.info, context=context)

    for text, stability in (
        ("one", (0.5,)),
        ("one to", (1.0, 0.5)),
        ("one two", (1.0, 0.6)),
        ("one two three", (1.0, 0.95, 0.5)),
    ):
        bench.segment.receive(RequestOutput("r", text, stability=stability))
    bench.close()
    bench.output("one two three four", reason="stop")

    assert bench.listener.said == [
        ("one", 0),
        ("one two", 0),
        ("decoded", "one two three four", False),
    ]
