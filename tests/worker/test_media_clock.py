"""Missing audio takes its time on the clock, and what never came is told and counted apart."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.segmenter import SegmenterConfig
from tests.support.calls import Shape, call, chunk, control, message, placed, spoken
from tests.support.disturbed import reordered, timed
from tests.support.partitions import Desk
from worker.media_clock import ClockLimits, missing_samples
from worker.messages import RawMessage
from worker.ports import Limits


def desk_with(*messages: RawMessage, limits: Limits | None = None) -> Desk:
    desk = Desk([], limits=limits or Limits())
    desk.arrive(*messages)
    desk.settle()
    return desk


def at(position_ms: int, value: bytes, **headers: object) -> RawMessage:
    return chunk("c", value, position_ms=position_ms, **headers)


def gaps(desk: Desk) -> list[tuple[str, int, int, int]]:
    """Reason, first and last sample and filled samples of every gap that was told."""
    return [
        (g["gap"]["reason"], g["gap"]["start_sample"], g["gap"]["end_sample"], g["filled_samples"])
        for g in desk.told("gap")
    ]


def total(desk: Desk, channel: int = 0) -> dict[str, int]:
    """Samples of a channel by fate; what was received is what became of it, exactly."""
    (ended,) = desk.told("ended")
    totals = {t["channel"]: t for t in ended["totals"]}[channel]
    names = ("received", "decoded", "silence", "filled")
    parts = {name: totals.get(name, {"samples": 0})["samples"] for name in names}
    dropped = {reason: amount["samples"] for reason, amount in totals["dropped"].items()}
    assert parts["received"] == parts["decoded"] + parts["silence"] + sum(dropped.values())
    return {**parts, **dropped}


def test_lost_messages_take_their_time_on_the_clock() -> None:
    desk = desk_with(
        at(0, spoken(1.0), sequence=0),
        at(1500, spoken(1.0), sequence=3),
        control("c", "end", sequence=4),
    )

    assert gaps(desk) == [("missing", 8000, 12_000, 4000)]
    (told,) = desk.told("gap")
    assert (told["first_sequence"], told["last_sequence"]) == (1, 2)
    (final,) = desk.transcripts()
    assert (final["start"], final["end"]) == (0.0, 2.5)
    assert final["gaps"] == [
        {
            "start": 1.0,
            "end": 1.5,
            "start_sample": 8000,
            "end_sample": 12_000,
            "reason": "missing",
        }
    ]
    assert total(desk) == {"received": 16_000, "decoded": 16_000, "silence": 0, "filled": 4000}


def test_lost_messages_without_times_take_none() -> None:
    desk = desk_with(
        chunk("c", spoken(1.0), sequence=0),
        chunk("c", spoken(1.0), sequence=3),
        control("c", "end", sequence=4),
    )

    assert gaps(desk) == [("missing", 8000, 8000, 0)]
    (final,) = desk.transcripts()
    assert final["end"] == 2.0
    assert [(g["start_sample"], g["end_sample"]) for g in final["gaps"]] == [(8000, 8000)]


def test_a_gap_is_silence_and_no_click() -> None:
    """What is put in the place of lost audio decodes to the samples of digital silence."""
    lossy = desk_with(
        at(0, spoken(1.0), sequence=0), at(2000, spoken(1.0), sequence=2), control("c", "end")
    )
    hushes = desk_with(
        chunk("c", spoken(1.0)),
        chunk("c", b"\xff" * 8000),  # zero in µ-law
        chunk("c", spoken(1.0)),
        control("c", "end"),
    )

    texts = [[f["alternatives"] for f in desk.transcripts()] for desk in (lossy, hushes)]
    assert texts[0] == texts[1]


def test_a_pause_without_a_missing_number_is_filled_too() -> None:
    desk = desk_with(
        at(0, spoken(1.0), sequence=0), at(4000, spoken(1.0), sequence=1), control("c", "end")
    )

    assert gaps(desk) == [("pause", 8000, 32_000, 24_000)]
    assert "first_sequence" not in desk.told("gap")[0]
    first, second = desk.transcripts()
    assert (first["end_reason"], second["end"]) == ("silence", 5.0)
    assert total(desk)["filled"] == 24_000


@pytest.mark.parametrize("position_ms", [0, 900, 1000, 1100, 1200])
def test_times_that_go_back_or_differ_by_little_are_jitter(position_ms: int) -> None:
    desk = desk_with(at(0, spoken(1.0)), at(position_ms, spoken(1.0)), control("c", "end"))

    assert gaps(desk) == []
    assert desk.transcripts()[0]["end"] == 2.0


def test_drift_beyond_the_tolerance_is_a_pause() -> None:
    desk = desk_with(at(0, spoken(1.0)), at(1201, spoken(1.0)), control("c", "end"))

    assert gaps(desk) == [("pause", 8000, 9608, 1608)]


def test_what_is_longer_than_the_limit_ends_the_segment_and_is_passed_over() -> None:
    desk = desk_with(
        at(0, spoken(1.0), sequence=0),
        at(3_601_000, spoken(1.0), sequence=1),
        control("c", "end", sequence=2),
    )

    hour = 3600 * 8000
    assert gaps(desk) == [("pause", 8000, 8000 + hour, 0)]
    spans = [(f["start"], f["end"], f["end_reason"]) for f in desk.transcripts()]
    assert spans == [(0.0, 1.0, "silence"), (3601.0, 3602.0, "end")]
    assert total(desk) == {"received": 16_000, "decoded": 16_000, "silence": 0, "filled": hour}


def test_a_time_a_day_ahead_is_no_time_of_this_call() -> None:
    desk = desk_with(at(0, spoken(1.0)), at(1_700_000_000_000, spoken(1.0)), control("c", "end"))

    assert gaps(desk) == []


def test_an_abort_gives_up_no_samples_that_never_came() -> None:
    desk = desk_with(at(0, spoken(1.0)), at(1500, spoken(1.0)), control("c", "abort"))

    assert total(desk) == {
        "received": 16_000,
        "decoded": 0,
        "silence": 0,
        "filled": 4000,
        "abort": 16_000,
    }


def test_a_frame_that_a_pause_splits_is_whole_before_it() -> None:
    media = {"encoding": "pcm_s16le", "sample_rate": 8000}
    audio = spoken(1.0, "pcm_s16le")
    desk = desk_with(
        message("c", audio[:8001], {**media, "position_ms": 0}),
        message("c", audio[8001:], {**media, "position_ms": 2500}),
        control("c", "end"),
    )

    assert gaps(desk) == [("pause", 4001, 20_000, 15_999)]
    assert total(desk)["received"] == 8000
    assert desk.told("ended")[0]["warnings"] == []


def test_both_channels_of_a_call_are_on_one_timeline() -> None:
    def part(channel: int, position_ms: int, value: bytes, sequence: int) -> RawMessage:
        return at(position_ms, value, channel=channel, channels=2, sequence=sequence)

    desk = desk_with(
        part(0, 0, spoken(1.0), 0),
        part(1, 3000, spoken(1.0), 0),  # speaks up later
        part(0, 6000, spoken(1.0), 1),  # was silent meanwhile
        part(1, 4500, spoken(1.0), 2),  # lost half a second
        control("c", "end"),
    )

    spans = sorted((f["channel"], f["start"], f["end"]) for f in desk.transcripts())
    assert spans[0][:2] == (0, 0.0)
    assert 1.0 < spans[0][2] < 2.0
    assert spans[1][0] == 0
    assert spans[1][2] == 7.0
    assert spans[2] == (1, 3.0, 5.5)
    assert total(desk, 0)["received"] == total(desk, 1)["received"] == 16_000
    assert total(desk, 0)["filled"] == 5 * 8000
    assert total(desk, 1)["filled"] == 4000


@pytest.mark.parametrize("event", ["audio", "keepalive"])
def test_what_was_kept_out_of_the_recording_takes_its_time(event: str) -> None:
    told = {"discarded_ms": 1500}
    desk = desk_with(
        at(0, spoken(1.0), sequence=0),
        *([control("c", "keepalive", sequence=1, **told)] if event == "keepalive" else []),
        at(2500, spoken(1.0), sequence=2, **(told if event == "audio" else {})),
        control("c", "end"),
    )

    assert gaps(desk) == [("discarded", 8000, 20_000, 12_000)]
    assert desk.told("gap")[0].get("first_sequence") == (1 if event == "audio" else None)
    assert total(desk)["filled"] == 12_000
    assert desk.transcripts()[-1]["end"] == 3.5
    assert desk.committed.offset == len(desk.log)


def test_a_discarded_stretch_without_times_is_enough_and_may_be_shorter_than_a_pause() -> None:
    desk = desk_with(
        chunk("c", spoken(1.0)),
        control("c", "keepalive", discarded_ms=50),
        chunk("c", spoken(1.0), discarded_ms="0.4"),
        control("c", "end"),
    )

    assert gaps(desk) == [("discarded", 8000, 8400, 400)]


@pytest.mark.parametrize("name", ["discarded", "resumed"])
def test_what_audiohook_calls_discarded_takes_its_time(name: str) -> None:
    said = {"type": name, "parameters": {"start": "PT1S", "discarded": "PT0.1S"}}
    media = {"content-type": "application/vnd.genesys.audiohook+json"}
    desk = desk_with(
        at(0, spoken(1.0)),
        message("c", orjson.dumps(said), media),
        at(1100, spoken(1.0)),
        control("c", "end"),
    )

    assert gaps(desk) == [("discarded", 8000, 8800, 800)]


@pytest.mark.parametrize(
    ("stated_ms", "is_gap", "expected"),
    [
        (1000, False, 0),
        (1200, False, 0),
        (1201, False, 1608),
        (1002, True, 0),
        (1003, True, 24),
        (0, True, 0),
        (1000 + 86_400_000, False, 86_400 * 8000),
        (1001 + 86_400_000, False, 0),
    ],
)
def test_time_is_missing_beyond_the_tolerance(stated_ms: int, is_gap: bool, expected: int) -> None:
    assert missing_samples(stated_ms, 8000, 8000, ClockLimits(), is_gap) == expected


def counted(log: list[RawMessage], shape: Shape) -> int:
    """Samples that the log holds, counted without any of the code under test."""
    sample_bytes = 1 if shape.encoding == "mulaw" else 2
    return sum(len(raw.value or b"") for raw in log) // sample_bytes


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 1 << 32))
def test_totals_are_exact_whatever_is_lost_late_repeated_or_silent_and_whoever_dies(
    seed: int,
) -> None:
    rng = random.Random(seed)
    shape = Shape(smallest=300, largest=1500)
    lane = timed(call("c", shape, rng.uniform(2, 6), rng), shape, rng, likely=0.1)
    body: list[RawMessage] = []
    for raw in lane[1:-1]:
        body += [raw] * rng.choice([0, 1, 1, 1, 1, 1, 1, 1, 2])
    log = placed([lane[0], *reordered([*body, lane[-1]], rng)])
    desk = Desk(log, endpointing=SegmenterConfig(gate=rng.random() < 0.7))

    while desk.position < len(log):
        desk.deliver(rng.choice([1, 2, 5]))
        for _ in range(rng.choice([0, 1, 3])):
            desk.speech.step(rng.choice([1, 100]))
            desk.outbox.acknowledge(rng.choice([1, 100]))
            desk.commit()
        if rng.random() < 0.15:
            desk.take_over()
    desk.settle()

    assert all(len(said) == 1 for said in (desk.finals() | desk.events()).values())
    parts = total(desk)
    assert parts["received"] == counted(log, shape)
    told: list[dict[str, Any]] = desk.told("gap")
    clock = parts["decoded"] + parts["silence"] + parts["filled"]
    assert parts["filled"] == sum(g["gap"]["end_sample"] - g["gap"]["start_sample"] for g in told)
    ends = [final["end_sample"] for final in desk.transcripts()]
    assert max(ends, default=0) <= clock
    assert desk.committed.offset == len(log)
