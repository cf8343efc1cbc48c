"""Calls that others have got wrong: of hardly any sound, of none at all, and without an end."""

from __future__ import annotations

import logging
import random

import orjson
import pytest

from tests.support.calls import Shape, call, chunk, control, message, placed
from tests.support.partitions import Desk
from worker.messages import Kind

# A frame of features is 400 samples of 16 kHz, the first window of the model 1200.
SIZES = (0, 1, 199, 200, 399, 400, 599, 600, 1199, 1200)


def samples(desk: Desk) -> dict[str, int]:
    """The totals of the one session that ended."""
    (ended,) = desk.told("ended")
    (totals,) = ended["totals"]
    return {name: totals[name]["samples"] for name in ("received", "decoded", "silence")}


@pytest.mark.parametrize("number", SIZES)
@pytest.mark.parametrize("gate", [True, False])
def test_a_call_of_hardly_any_sound_ends_with_all_of_it_counted(number: int, gate: bool) -> None:
    options = orjson.dumps({"gate": gate, "emit_empty": True}).decode()
    sound = bytes(random.Random(number).choices(range(0x80, 0xA0), k=number))  # loud µ-law
    desk = Desk(placed([chunk("a", sound, options=options, event="end")]))
    desk.run()

    if number == 0:
        assert desk.told("started") == []  # no audio begins no session
    else:
        counted = samples(desk)
        assert counted["received"] == number
        assert counted["decoded"] + counted["silence"] == number
    assert desk.committed.offset == 1
    assert desk.dead_letters() == []


@pytest.mark.parametrize("code", [b"\xff", b"\x7f"], ids=["plus zero", "minus zero"])
def test_a_minute_of_mulaw_silence_says_nothing_and_is_counted_whole(code: bytes) -> None:
    log = [chunk("a", code * 8_000, sequence=n) for n in range(60)]
    desk = Desk(placed([*log, control("a", "end")]))
    desk.run()

    assert desk.finals() == {}
    assert samples(desk) == {"received": 480_000, "decoded": 0, "silence": 480_000}


def test_an_end_without_audio_after_audio_gives_one_final() -> None:
    rng = random.Random(1)
    desk = Desk(placed(call("a", Shape(), 3.0, rng)))
    desk.run()
    alone = desk.finals()
    again = Desk(placed([*call("a", Shape(), 3.0, random.Random(1)), control("a", "end")]))
    again.run()

    assert again.finals() == alone
    assert len(again.told("ended")) == 1


def test_what_is_said_is_nowhere_but_in_transcripts(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(2)
    log = call("a", Shape(channels=2), 9.0, rng)
    log.insert(3, message("a", b"x", {"encoding": "opus", "sample_rate": 8000}))
    desk = Desk(placed(log))
    with caplog.at_level(logging.DEBUG):
        desk.run()

    texts = [final["alternatives"][0]["transcript"] for final in desk.transcripts()]
    assert len(texts) > 2
    assert all(texts)
    assert len(desk.dead_letters()) == 1
    elsewhere = [r for r in desk.all_records() if r.kind in (Kind.EVENT, Kind.DEAD_LETTER)]
    for text in texts:
        assert text not in caplog.text
        assert not [r for r in elsewhere if text in repr((r.key, r.value, r.headers))]
