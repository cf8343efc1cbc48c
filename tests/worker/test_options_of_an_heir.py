"""Whoever takes a call over asks the engine for exactly what its producer asks for."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import Shape, call, chunk, control, hushed, interleaved, placed
from tests.support.partitions import Desk, HashingSpeech
from worker.messages import RawMessage
from worker.partition import Partition
from worker.segments import Segment

CHOICES = (
    {},
    {"words": True, "confidences": True},
    {"hotwords": ["june sixteenth", {"phrase": "july", "boost": 7}], "max_alternatives": 3},
    {"words": True, "punctuate": True, "lenient": True},
    {"endpointing": {"min_silence_ms": 200, "max_utterance_ms": 3000}, "search": "prefix_beam"},
    {"partials": False, "tenant": "acme", "no_speech_ms": 700},
)


class Asking(HashingSpeech):
    """Notes what the engine is asked for with each segment."""

    def __init__(self, asked: dict[str, set[bytes]]) -> None:
        super().__init__()
        self._asked = asked

    def open(self, segment: Segment, priority: int) -> str:
        options = segment.info.context.options
        place = f"{segment.info.context.roles}:{segment.info.channel}:{segment.info.start_sample}"
        told = orjson.dumps([repr(options.decoding), options.tenant, options.warnings])
        self._asked.setdefault(place, set()).add(told)
        return super().open(segment, priority)


class AskingDesk(Desk):
    """Owners whose engines write down what they are asked for in one book."""

    def __init__(self, log: list[RawMessage]) -> None:
        self.asked: dict[str, set[bytes]] = {}
        super().__init__(log)

    def _assign(self) -> Partition:
        self.speech = Asking(self.asked)
        return super()._assign()


def asking(key: str, rng: random.Random, number: int) -> list[RawMessage]:
    """A call whose chunks all restate some options; its role is its own."""
    shape = Shape(channels=rng.choice([1, 2]), largest=3000)
    options = orjson.dumps(rng.choice(CHOICES))
    roles = ",".join(f"c{number}-{channel}" for channel in range(shape.channels)).encode()
    messages = []
    for raw in call(key, shape, rng.uniform(2, 9), rng):
        headers = tuple((name, roles if name == "roles" else text) for name, text in raw.headers)
        messages.append(replace(raw, headers=(*headers, ("options", options))))
    return messages


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 1 << 32))
def test_an_heir_asks_the_engine_for_what_the_dead_owner_asked(seed: int) -> None:
    rng = random.Random(seed)
    calls = [asking(f"call-{n}", rng, n) for n in range(rng.randint(1, 3))]
    log = placed(interleaved(calls, rng), rng)
    undisturbed = AskingDesk(log)
    undisturbed.run()

    desk = AskingDesk(log)
    for _ in range(60):
        desk.deliver(rng.choice([1, 2, 5]))
        desk.speech.step(rng.choice([0, 1, 100]))
        desk.outbox.acknowledge(rng.choice([0, 1, 100]))
        if rng.random() < 0.4:
            desk.commit()
        if rng.random() < 0.3:
            desk.take_over()
    desk.deliver(len(log))
    desk.settle()

    assert undisturbed.asked
    assert desk.asked == undisturbed.asked
    assert desk.finals() == undisturbed.finals()


@pytest.mark.parametrize("options", CHOICES, ids=lambda options: "+".join(options) or "none")
def test_the_finals_of_an_heir_carry_the_warnings_of_lenient_options(options: dict) -> None:
    rng = random.Random(3)
    text = orjson.dumps(options)
    messages = [
        replace(raw, headers=(*raw.headers, ("options", text)))
        for raw in call("c", Shape(), 9.0, rng)
    ]
    desk = AskingDesk(placed(messages))
    desk.deliver(len(messages) // 2)
    desk.settle()
    before = len(desk.finals())
    desk.take_over()
    desk.run()

    finals = desk.transcripts()
    assert len(finals) > before
    expected = ["option_unsupported:punctuate"] if "punctuate" in options else []
    assert [final["warnings"] for final in finals] == [expected] * len(finals)


UNKNOWN = {"options": '{"lenient": true, "punctuate": true}'}
REFUSED = ["option_unsupported:punctuate"]


@pytest.mark.parametrize("heard_by_the_first", range(5))
def test_a_call_without_finals_tells_its_refused_options_at_its_end_from_an_heir_as_well(
    heard_by_the_first: int,
) -> None:
    quiet = [chunk("c", hushed(0.5), sequence=n, **UNKNOWN) for n in range(3)]
    desk = Desk(placed([*quiet, control("c", "end", **UNKNOWN)]))
    desk.deliver(heard_by_the_first)
    desk.commit()
    desk.take_over()
    desk.run()

    assert desk.transcripts() == []
    assert [ended["warnings"] for ended in desk.told("ended")] == [REFUSED]
    assert all(len(said) == 1 for said in desk.events().values())


@pytest.mark.parametrize("event", ["end", "abort"])
@pytest.mark.parametrize(
    ("of_audio", "of_end", "told"),
    [(UNKNOWN, {}, []), ({}, UNKNOWN, REFUSED), (UNKNOWN, UNKNOWN, REFUSED)],
    ids=["the audio alone", "the end alone", "both"],
)
def test_an_ended_event_has_the_refused_options_of_the_message_that_ended_the_session(
    event: str, of_audio: dict[str, str], of_end: dict[str, str], told: list[str]
) -> None:
    desk = Desk(placed([chunk("c", hushed(0.5), **of_audio), control("c", event, **of_end)]))
    desk.run()

    assert [ended["warnings"] for ended in desk.told("ended")] == [told]


def test_a_session_that_time_ends_tells_no_options_for_an_heir_may_know_none() -> None:
    desk = Desk(placed([chunk("c", hushed(0.5), **UNKNOWN)]))
    desk.run()
    desk.wait(desk.limits.session_ttl_s + 1)
    desk.settle()

    assert [(ended["reason"], ended["warnings"]) for ended in desk.told("ended")] == [("ttl", [])]
