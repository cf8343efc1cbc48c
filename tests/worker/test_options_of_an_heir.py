"""Whoever takes a call over asks the engine for exactly what its producer asks for."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import Shape, call, interleaved, placed
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
