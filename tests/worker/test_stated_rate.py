"""Finals say when the times of a call's messages are not those of its declared sample rate."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.support.calls import control, encoded, message
from tests.support.partitions import Desk
from tests.support.signals import conversation
from worker.messages import RawMessage

SECONDS = 6.0
WARNING = "sample_rate_suspect"


def call(actual: int, declared: int, step_ms: int = 20, **changes: object) -> list[RawMessage]:
    """A call at the rate `actual`, every message with its true time and the rate `declared`."""
    audio = encoded(conversation(SECONDS, actual, 11), "pcm_s16le")
    step = actual * step_ms // 1000 * 2
    chunks = []
    for number, at in enumerate(range(0, len(audio), step)):
        headers = {
            "encoding": "pcm_s16le",
            "sample_rate": declared,
            "sequence": number,
            "position_ms": round(1000 * at / 2 / actual),
            **changes,
        }
        chunks.append(message("c", audio[at : at + step], headers))
    return [*chunks, control("c", "end")]


def with_position(raw: RawMessage, position_ms: int) -> RawMessage:
    headers = {**dict(raw.headers), "position_ms": str(max(0, position_ms)).encode()}
    return replace(raw, headers=tuple(headers.items()))


def position_of(raw: RawMessage) -> int:
    return int(dict(raw.headers)["position_ms"] or b"0")


def warnings_of(log: list[RawMessage]) -> list[list[str]]:
    desk = Desk([])
    desk.arrive(*log)
    desk.settle()
    finals = desk.transcripts()
    assert finals
    return [final["warnings"] for final in finals]


@pytest.mark.parametrize("rate", [8000, 11025, 48000])
@pytest.mark.parametrize("step_ms", [10, 20, 100])
def test_the_times_of_a_rightly_declared_call_are_those_of_its_rate(rate, step_ms):
    assert set(map(tuple, warnings_of(call(rate, rate, step_ms)))) == {()}


@pytest.mark.parametrize(
    ("actual", "declared"),
    [(8000, 16000), (16000, 8000), (8000, 11025), (44100, 48000), (48000, 44100), (48000, 16000)],
)
def test_another_rate_than_the_declared_one_is_noticed(actual, declared):
    found = warnings_of(call(actual, declared))

    assert [WARNING] in found


def test_a_call_without_times_is_not_judged():
    log = call(16000, 8000)
    timeless = [
        replace(raw, headers=tuple(pair for pair in raw.headers if pair[0] != "position_ms"))
        for raw in log
    ]

    assert [WARNING] not in warnings_of(timeless)


@pytest.mark.parametrize("seed", range(4))
def test_jitter_pauses_and_lost_messages_are_no_other_rate(seed):
    rng = random.Random(seed)
    log = call(8000, 8000)
    jittered = [with_position(raw, position_of(raw) + rng.randrange(-15, 16)) for raw in log[:-1]]
    delayed_ms, paused = 0, []
    for raw in log[:-1]:
        delayed_ms += rng.randrange(500, 3000) if rng.random() < 0.02 else 0
        paused.append(with_position(raw, position_of(raw) + delayed_ms))
    holed = [raw for raw in log[:-1] if rng.random() < 0.8]

    for disturbed in (jittered, paused, holed):
        assert [WARNING] not in warnings_of([*disturbed, log[-1]])


@pytest.mark.parametrize("seed", range(4))
def test_an_heir_warns_of_the_segments_of_which_its_former_owner_would_have_warned(seed):
    rng = random.Random(seed)
    log = call(16000, 8000)
    undisturbed, disturbed = Desk([]), Desk([])
    undisturbed.arrive(*log)
    undisturbed.settle()

    for raw in log:
        disturbed.arrive(raw)
        if rng.random() < 0.1:
            disturbed.speech.step()
            disturbed.outbox.acknowledge(rng.randrange(3))
        if rng.random() < 0.05:
            disturbed.commit()
        if rng.random() < 0.015:
            disturbed.take_over()
            disturbed.deliver(len(disturbed.log))
    disturbed.settle()

    assert disturbed.finals() == undisturbed.finals()
    assert any(WARNING in final["warnings"] for final in undisturbed.transcripts())
