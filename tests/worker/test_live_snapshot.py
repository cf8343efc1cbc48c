"""What the live page is told: who speaks and what waits, bounded, and no text unless asked for."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.stats import StepStats
from tests.support.calls import chunk, control, hushed, spoken
from tests.support.partitions import Desk
from worker.cloudevents import ModelName
from worker.counters import RECENT_FINALS, MessageCounters
from worker.gauges import RECENT_STEPS, Gauges, Subjects
from worker.live_board import LiveBoard
from worker.live_snapshot import MOST_CHARS, MOST_FILES, MOST_PARTITIONS, Scene, show_on, snapshot
from worker.metrics import Metrics, Registry
from worker.models import Step
from worker.settings import Settings


def scene_of(desk: Desk, **more: Any) -> Scene:
    """A worker whose only partition of calls is the desk's."""
    partitions = {0: desk.partition}
    source = SimpleNamespace(
        topic="chunks", paused=frozenset({0}), lag=lambda _number, position: 100 - position
    )
    files = SimpleNamespace(
        open_jobs=more.get("open_jobs", 0),
        oldest_age_s=lambda: 12.34,
        progress=lambda: iter(more.get("progress", ())),
    )
    subjects = Subjects(
        chunks=SimpleNamespace(partitions=partitions),  # type: ignore[arg-type]
        files=files,  # type: ignore[arg-type]
        lanes=[(source, more.get("owned", partitions))],  # type: ignore[list-item]
        recognizer=SimpleNamespace(held_s=lambda: {0: 1.25}, undecoded_age_s=lambda: 0.42),  # type: ignore[arg-type]
    )
    return Scene(subjects, more.get("steps", ()), more.get("latencies_s", ()))


def look(desk: Desk, show_text: bool = True, most: int = 50, **more: Any) -> dict[str, Any]:
    shown = snapshot(scene_of(desk, **more), desk.clock_s, most, show_text)
    decoded: dict[str, Any] = orjson.loads(orjson.dumps(shown))
    return decoded


def test_a_call_shows_who_speaks_for_how_long_and_what_was_understood() -> None:
    desk = Desk([])
    desk.arrive(chunk("call-1", spoken(1.0), roles="agent"), chunk("call-1", hushed(1.0)))
    desk.settle()
    desk.arrive(chunk("call-1", spoken(0.7), roles="agent"))
    ((segment, _),) = desk.speech.open_requests.values()
    desk.speech.revise(segment, "how can i", 8_000)
    desk.clock_s += 2.0

    (call,) = look(desk)["sessions"]["shown"]
    (channel,) = call["channels"]
    assert (call["id"], call["origin"], call["state"]) == ("call-1", "0-0", "open")
    assert (call["elapsed_s"], call["quiet_s"]) == (2.7, 2.0)
    assert (channel["channel"], channel["role"], channel["speaking"]) == (0, "agent", True)
    assert channel["finals"] == 1
    assert 0.6 <= channel["segment_s"] <= 1.0
    assert channel["partial"] == "how can i"
    assert channel["last"] == desk.transcripts()[0]["alternatives"][0]["transcript"]


def test_without_leave_no_text_is_in_it() -> None:
    desk = Desk([])
    desk.arrive(chunk("call-1", spoken(1.0)), chunk("call-1", hushed(1.0)))
    desk.settle()
    desk.arrive(chunk("call-1", spoken(1.0)))
    ((segment, _),) = desk.speech.open_requests.values()
    desk.speech.revise(segment, "my card number is", 8_000)
    said = desk.transcripts()[0]["alternatives"][0]["transcript"]

    shown = orjson.dumps(look(desk, show_text=False)).decode()
    assert '"speaking":true' in shown
    assert "my card number is" not in shown
    assert said not in shown
    assert '"partial"' not in shown
    assert '"last"' not in shown


def test_a_segment_that_waits_for_its_final_is_what_was_said_last() -> None:
    desk = Desk([], answering=False)
    desk.arrive(chunk("call-1", spoken(1.0)), chunk("call-1", hushed(1.0)))
    desk.speech.step()

    (channel,) = look(desk)["sessions"]["shown"][0]["channels"]
    assert (channel["speaking"], channel["waiting"], channel["finals"]) == (False, 1, 0)
    assert channel["last"] == desk.transcripts()[0]["alternatives"][0]["transcript"]


def test_of_many_calls_those_heard_last_are_shown_and_all_are_counted() -> None:
    desk = Desk([])
    for number in range(9):
        desk.clock_s += 1
        desk.arrive(chunk(f"call-{number}", spoken(0.3)))
    desk.clock_s += 1
    desk.arrive(chunk("call-2", spoken(0.3)))

    sessions = look(desk, most=3)["sessions"]
    assert sessions["open"] == 9
    assert [call["id"] for call in sessions["shown"]] == ["call-2", "call-8", "call-7"]


def test_a_call_that_ends_says_so_until_it_is_gone() -> None:
    desk = Desk([], answering=False)
    desk.arrive(chunk("call-1", spoken(1.0)), control("call-1", "end"))
    assert look(desk)["sessions"]["shown"][0]["state"] == "ending"

    done = Desk([])
    done.arrive(chunk("call-1", spoken(1.0)), control("call-1", "end"))
    done.settle()
    assert look(done)["sessions"] == {"open": 0, "shown": []}


def test_texts_files_and_partitions_are_bounded() -> None:
    desk = Desk([])
    desk.arrive(chunk("call-1", spoken(1.0)))
    ((segment, _),) = desk.speech.open_requests.values()
    desk.speech.revise(segment, "a" * 5_000 + "end", 8_000)
    shown = look(
        desk,
        open_jobs=500,
        progress=[(f"file-{n}", n + 0.26) for n in range(500)],
        owned=dict.fromkeys(range(500), desk.partition),
    )

    partial = shown["sessions"]["shown"][0]["channels"][0]["partial"]
    assert len(partial) == MOST_CHARS
    assert partial.endswith("end")
    assert shown["files"]["open"] == 500
    assert len(shown["files"]["shown"]) == MOST_FILES
    assert shown["files"]["shown"][1] == {"id": "file-1", "told_s": 1.3}
    assert shown["partitions"]["owned"] == 500
    assert len(shown["partitions"]["shown"]) == MOST_PARTITIONS


def test_queue_and_partitions_are_those_of_the_lanes() -> None:
    desk = Desk([])
    desk.arrive(chunk("call-1", spoken(1.0)))
    shown = look(desk, steps=[(3, 0.02), (1, 0.01)])

    assert shown["queue"] == {
        "runnable_audio_s": 1.2,
        "undecoded_age_s": 0.4,
        "files_age_s": 12.3,
    }
    assert shown["batches"] == [3, 1]
    assert shown["partitions"]["shown"] == [
        {"topic": "chunks", "partition": 0, "lag": 100, "paused": True, "isolated": False}
    ]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 100), max_size=300))
def test_percentiles_are_the_nearest_rank(latencies_s: list[float]) -> None:
    shown = snapshot(scene_of(Desk([]), latencies_s=latencies_s), 0.0, 1, False)["final_ms"]

    if not latencies_s:
        assert shown is None
        return
    for percent in (50, 90, 99):
        rank = math.ceil(percent / 100 * len(latencies_s))
        (expected,) = sorted(latencies_s)[rank - 1 : rank]
        assert shown[f"p{percent}"] == round(expected * 1000)


def test_what_is_kept_for_the_page_is_bounded() -> None:
    metrics = Metrics(Registry())
    gauges = Gauges(metrics, scene_of(Desk([])).subjects, lambda: 0.0)
    counters = MessageCounters(metrics)
    for number in range(1000):
        gauges.stepped(Step("live", StepStats(streams=number % 3, step_s=0.01)))
        counters.final_acknowledged(number / 1000)

    assert len(gauges.recent_steps) == RECENT_STEPS
    assert all(size > 0 for size, _ in gauges.recent_steps)
    assert list(counters.recent_latencies_s)[-1] == pytest.approx(0.999)
    assert len(counters.recent_latencies_s) == RECENT_FINALS


def test_the_loop_tells_a_board_and_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OASR_KAFKA__SASL_PASSWORD", "secret")
    worker = Settings(kafka={"bootstrap_servers": "broker:9092", "group": "calls"})  # type: ignore[arg-type]
    desk = Desk([])
    desk.arrive(chunk("call-1", spoken(1.0)))
    board = LiveBoard()
    show = show_on(board, scene_of(desk), worker, ModelName("tiny", "abc"))
    show()
    assert board.look() is None
    show()

    seen = board.look()
    assert seen is not None
    shown = orjson.loads(seen[0])
    assert shown["worker"]["group"] == "calls"
    assert shown["worker"]["model"] == "tiny"
    assert shown["sessions"]["open"] == 1
    assert "partial" not in shown["sessions"]["shown"][0]["channels"][0]
    assert b"secret" not in seen[0]
    show_on(None, scene_of(desk), worker, ModelName("tiny", "abc"))()  # nobody to tell: nothing
