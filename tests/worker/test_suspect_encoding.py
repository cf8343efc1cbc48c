"""A call that is declared as something else says so in its finals, also after a take-over."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile

from oasr.audio import g711
from tests.support.calls import control, message
from tests.support.partitions import Desk
from tests.support.schemas import validator
from worker.messages import RawMessage

CALL = Path(__file__).parents[1] / "data" / "calls" / "call-00.wav"
SECONDS = 12


def call(declared: str, channels: int = 1) -> list[RawMessage]:
    """The recorded call as µ-law bytes in messages of 100 ms that declare an encoding."""
    samples, rate = soundfile.read(CALL, dtype="int16", frames=SECONDS * 8000)
    assert rate == 8000
    audio = g711.linear_to_mulaw(np.ascontiguousarray(samples[:, 0]))
    headers = {"encoding": declared, "sample_rate": 8000, "channels": channels}
    chunks = [
        message("c", audio[at : at + 800], {**headers, "sequence": at // 800})
        for at in range(0, len(audio), 800)
    ]
    return [*chunks, control("c", "end")]


def finals_of(desk: Desk) -> dict[str, list[str]]:
    return {final["segment_id"]: final["warnings"] for final in desk.transcripts()}


def test_a_rightly_declared_call_has_no_warning():
    desk = Desk([])

    desk.arrive(*call("mulaw"))
    desk.settle()

    assert len(finals_of(desk)) >= 2
    assert set(map(tuple, finals_of(desk).values())) == {()}


@pytest.mark.parametrize("silent", [False, True])
def test_a_call_that_is_declared_otherwise_has_finals_that_say_so_even_without_text(silent):
    desk = Desk([])
    desk.speech.silent = silent

    desk.arrive(*call("pcm_s16le"))
    desk.settle()

    suspect = [final for final in desk.transcripts() if final["warnings"]]
    assert suspect
    assert {tuple(final["warnings"]) for final in suspect} == {("encoding_suspect:mulaw",)}
    for final in suspect:
        validator("transcript").validate(json.loads(json.dumps(final)))
    assert desk.told("ended")[0]["finals"] == len(desk.transcripts())


@pytest.mark.parametrize("seed", range(6))
def test_an_heir_says_of_a_segment_what_its_former_owner_would_have_said(seed):
    rng = random.Random(seed)
    undisturbed, disturbed = Desk([]), Desk([])
    undisturbed.arrive(*call("pcm_s16le"))
    undisturbed.settle()

    for raw in call("pcm_s16le"):
        disturbed.arrive(raw)
        if rng.random() < 0.3:
            disturbed.speech.step()
            disturbed.outbox.acknowledge(rng.randrange(3))
        if rng.random() < 0.2:
            disturbed.commit()
        if rng.random() < 0.08:
            disturbed.take_over()
            disturbed.deliver(len(disturbed.log))
    disturbed.settle()

    assert disturbed.finals() == undisturbed.finals()
    assert any(finals_of(undisturbed).values())
