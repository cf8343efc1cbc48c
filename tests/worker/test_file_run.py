"""A file job publishes its finals in order, then tells how it went, then is done."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from tests.support.files import FileBench, inline
from tests.support.partitions import header
from tests.support.schemas import validator
from worker.codec import FileJob
from worker.errors import ErrorCode
from worker.file_reader import Completed, Failed, Item, Opening, Window
from worker.file_run import MAX_WINDOWS_IN_ENGINE, FileRun, FileState
from worker.messages import Kind
from worker.options import SessionOptions

OPENING = Opening(8000, 2)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def window(index: int, channel: int = 0, seconds: int = 1) -> Window:
    start = index * 16_000
    audio = np.zeros(seconds * 16_000, np.float32)
    return Window(channel, index, start, start + seconds * 8000, audio)


class Script:
    """A reader whose items the test lays out."""

    def __init__(self, *items: Item, options: SessionOptions | None = None) -> None:
        self.items = deque(items)
        self.cancelled = False
        self.job = FileJob(
            "f",
            b"",
            None,
            roles=("customer", "agent"),
            options=options or SessionOptions(),
            priority=3,
            traceparent=TRACE,
        )

    def take(self) -> Item | None:
        return self.items.popleft() if self.items else None

    def cancel(self) -> None:
        self.cancelled = True


class Bench(FileBench):
    def __init__(
        self,
        *items: Item,
        options: SessionOptions | None = None,
        emit_empty: bool = False,
        answering: bool = True,
    ) -> None:
        super().__init__(emit_empty, answering)
        self.done = 0
        self.script = Script(*items, options=options)
        self.run = FileRun(inline(7, b""), self.script, self.tools, self._finish)  # type: ignore[arg-type]
        self.run.advance()

    def _finish(self) -> None:
        self.done += 1


def test_finals_come_in_the_order_of_the_windows_and_then_the_completed_event() -> None:
    bench = Bench(OPENING, window(0), window(0, 1), window(1), Completed(40_000, ()))
    bench.recognizer.answer("3")
    bench.recognizer.answer("2")
    assert bench.finals() == []

    bench.recognizer.answer("1")
    assert [(f["channel"], f["segment_index"]) for f in bench.finals()] == [(0, 0), (1, 0), (0, 1)]
    assert bench.completed() == []

    bench.outbox.acknowledge()
    assert [record.kind for record in bench.outbox.sent][-1] is Kind.EVENT
    assert bench.done == 1
    assert not bench.run.is_open


def test_a_final_says_where_it_lies() -> None:
    bench = Bench(OPENING, window(0, 1), Completed(8000, ()))
    bench.recognizer.answer_all()

    (final,) = bench.finals()
    assert (final["session_id"], final["segment_id"]) == ("f", "f:0-7:1:0")
    assert (final["end_reason"], final["speech_final"], final["is_final"]) == (
        "window",
        False,
        True,
    )
    assert (final["role"], final["channels"]) == ("agent", 2)
    assert (final["start"], final["end"], final["revision"]) == (0.0, 1.0, 8000)
    assert final["latency"] == {"final_ms": 3000}
    assert header(bench.of(Kind.FINAL)[0], "traceparent") == TRACE
    assert bench.recognizer.priorities == [3]
    validator("transcript").validate(final)


def test_the_completed_event_has_the_totals() -> None:
    bench = Bench(OPENING, window(0), window(1), window(0, 1), Completed(40_000, ("truncated",)))
    bench.recognizer.answer("1")
    bench.recognizer.answer("2", text="")
    bench.recognizer.answer("3")
    bench.outbox.acknowledge()

    (completed,) = bench.completed()
    validator("file-completed").validate(completed)
    assert (completed["finals"], completed["duration"]) == (2, 5.0)
    assert completed["warnings"] == ["truncated"]
    left, right = completed["totals"]
    assert (left["finals"], left["decoded"]["samples"], left["silence"]["samples"]) == (
        1,
        16_000,
        24_000,
    )
    assert (right["finals"], right["decoded"]["samples"], right["role"]) == (1, 8000, "agent")
    assert bench.counts.without_text == 1


def test_a_file_of_silence_completes_at_once() -> None:
    bench = Bench(OPENING, Completed(8000, ()))

    assert bench.completed()[0]["finals"] == 0
    assert bench.done == 0
    bench.outbox.acknowledge()
    assert bench.done == 1


@pytest.mark.parametrize(("option", "finals"), [(None, 1), (False, 0), (True, 1)])
def test_windows_without_text_have_finals_on_demand(option: bool | None, finals: int) -> None:
    options = SessionOptions(emit_empty=option)
    bench = Bench(OPENING, window(0), Completed(8000, ()), options=options, emit_empty=True)
    bench.recognizer.answer("1", text="")
    bench.outbox.acknowledge()

    assert len(bench.finals()) == finals
    assert bench.done == 1


def test_a_failure_of_the_engine_is_a_warning_in_final_and_event() -> None:
    bench = Bench(OPENING, window(0), window(1), window(2), Completed(48_000, ()))
    bench.recognizer.answer("1", text="", reason="error")
    bench.recognizer.answer("2", text="half", reason="error")
    bench.recognizer.answer("3")
    bench.outbox.acknowledge()

    assert [f["warnings"] for f in bench.finals()] == [["engine_failed"], ["engine_failed"], []]
    assert bench.completed()[0]["warnings"] == ["engine_failed"]


def test_a_window_that_kills_its_process_is_told_and_the_others_are_heard() -> None:
    bench = Bench(OPENING, window(0), window(1), window(2), Completed(48_000, ()))
    bench.recognizer.answer("1")
    bench.recognizer.crash("2")
    bench.recognizer.answer("3")
    bench.outbox.acknowledge(3)
    assert bench.completed() == []
    bench.outbox.acknowledge()

    assert [f["warnings"] for f in bench.finals()] == [[], ["crashed_worker"], []]
    (letter,) = bench.of(Kind.DEAD_LETTER)
    assert header(letter, "error.code") == "crashed_worker"
    assert bench.completed()[0]["warnings"] == ["crashed_worker"]
    assert bench.counts.codes == [ErrorCode.CRASHED_WORKER]
    assert bench.done == 1


def test_warnings_of_lenient_options_are_in_the_event() -> None:
    options = SessionOptions(warnings=("option_unsupported:sing",))
    bench = Bench(OPENING, Completed(8000, ()), options=options)

    assert bench.completed()[0]["warnings"] == ["option_unsupported:sing"]


FAILED = Failed(ErrorCode.AUDIO_TOO_LONG, "too long")


def test_a_file_that_fails_is_a_dead_letter() -> None:
    bench = Bench(FAILED)

    assert bench.codes() == ["audio_too_long"]
    assert header(bench.of(Kind.DEAD_LETTER)[0], "error.stage") == "file"
    assert bench.counts.codes == [ErrorCode.AUDIO_TOO_LONG]
    assert bench.done == 0
    bench.outbox.acknowledge()
    assert bench.done == 1
    assert bench.completed() == []


def test_a_file_that_fails_later_keeps_its_finals_and_drops_the_rest() -> None:
    bench = Bench(OPENING, window(0), window(1), window(2))
    bench.recognizer.answer("1")
    bench.recognizer.answer("3")
    bench.script.items.append(FAILED)
    bench.run.advance()

    assert len(bench.finals()) == 1
    assert set(bench.recognizer.dropped) == {"2", "3"}
    bench.outbox.acknowledge()
    assert bench.codes() == ["audio_too_long"]


def test_its_dead_letter_waits_for_the_finals_before_it() -> None:
    bench = Bench(OPENING, window(0), answering=False)
    bench.recognizer.answer("1")
    bench.script.items.append(FAILED)
    bench.run.advance()
    bench.outbox.acknowledge()

    assert bench.codes() == []
    assert bench.run.is_open


def test_only_so_many_windows_are_in_the_engine() -> None:
    bench = Bench(OPENING, *[window(i) for i in range(40)], Completed(640_000, ()))
    assert len(bench.recognizer.waiting) == MAX_WINDOWS_IN_ENGINE

    bench.recognizer.answer("2")  # not its turn
    bench.run.advance()
    assert len(bench.script.items) == 41 - MAX_WINDOWS_IN_ENGINE

    bench.recognizer.answer("1")
    bench.run.advance()
    assert len(bench.script.items) == 39 - MAX_WINDOWS_IN_ENGINE


def test_a_hand_over_leaves_the_engine_and_says_nothing_more() -> None:
    bench = Bench(OPENING, window(0), window(1))
    bench.run.drop()
    bench.run.drop()
    bench.script.items.append(window(2))
    bench.run.advance()

    assert bench.script.cancelled
    assert bench.recognizer.dropped == ["1", "2"]
    assert bench.outbox.sent == []
    assert bench.run.state is FileState.DROPPED


def test_a_job_that_is_closed_stays_closed_when_it_is_dropped() -> None:
    bench = Bench(OPENING, Completed(8000, ()))
    bench.run.drop()

    assert bench.run.state is FileState.CLOSED
    with pytest.raises(RuntimeError, match="file"):
        bench.run.move_to(FileState.READING)


def test_the_same_file_again_has_the_same_ids() -> None:
    def ids() -> list[str]:
        bench = Bench(OPENING, window(0), window(0, 1), Completed(8000, ()))
        bench.recognizer.answer_all()
        bench.outbox.acknowledge()
        return [header(record, "ce_id") for record in bench.outbox.sent]

    assert ids() == ids() == ["f:0-7:0:0:final", "f:0-7:1:0:final", "files:0:7:-:completed"]
