"""Options are in force in the whole of a call, whoever decodes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.support.kafka import Message, Topics, WorkerProcess, consume_all, produce
from tests.support.worker_calls import all_ended, body, call_messages, excerpt

ASKED = {
    "words": True,
    "confidences": True,
    "hotwords": [{"phrase": "june sixteenth", "boost": 5}],
    "punctuate": True,
    "lenient": True,
}
# The customer says "june sixteenth" after this; the model alone takes it for something else.
KILLED_AFTER_S = 9.0


def finals_of(broker: str, topics: Topics, session_id: str) -> dict[str, dict[str, Any]]:
    """The finals of a session by segment."""
    found: list[dict[str, Any]] = [
        body(raw)
        for raw in consume_all(broker, topics.transcripts)
        if raw.key == session_id.encode()
    ]
    return {final["segment_id"]: final for final in found}


@pytest.mark.timeout(480)
def test_the_heir_of_a_killed_worker_goes_on_with_the_options_of_the_call(
    broker: str,
    unique_topics: Callable[..., Topics],
    worker_process: Callable[..., WorkerProcess],
) -> None:
    topics = unique_topics(partitions=1)
    audio = excerpt(0, 0.0, 26.0)
    options = ("options", orjson.dumps(ASKED))
    plain = call_messages(topics, "plain", audio)
    asking: list[Message] = [
        replace(message, headers=(*message.headers, options))
        for message in call_messages(topics, "asking", audio)
    ]
    kept = round(KILLED_AFTER_S * 1000 / 200)

    def both(start: int, end: int | None) -> list[Message]:
        return [*plain[start:end], *asking[start:end]]

    produce(broker, both(0, kept))
    fast = {"OASR_KAFKA__SESSION_TIMEOUT_MS": "2000"}
    victim = worker_process(topics, "heirs", fast, name="victim")
    with victim:
        consume_all(broker, topics.transcripts, lambda found: len(found) >= 2, timeout_s=120)
        victim.kill()
    before = finals_of(broker, topics, "asking").keys()
    produce(broker, both(kept, None))
    with worker_process(topics, "heirs", fast, name="heir"):
        consume_all(broker, topics.events, all_ended(2), timeout_s=180)

    asked = finals_of(broker, topics, "asking")
    assert before
    assert len(asked) > len(before) + 2
    for final in asked.values():
        assert final["warnings"] == ["option_unsupported:punctuate"]
        (reading,) = final["alternatives"]
        if reading["transcript"]:
            words = reading["words"]
            assert " ".join(word["word"] for word in words) == reading["transcript"]
            assert all(0 < word["confidence"] <= 1 for word in (reading, *words))
    said = {key: final["alternatives"][0]["transcript"] for key, final in asked.items()}
    assert "june sixteenth" in [text for key, text in said.items() if key not in before]

    unasked = finals_of(broker, topics, "plain")
    assert len(unasked) == len(asked)
    for final in unasked.values():
        assert final["warnings"] == []
        assert all("words" not in reading for reading in final["alternatives"])
        assert "june sixteenth" not in final["alternatives"][0]["transcript"]
