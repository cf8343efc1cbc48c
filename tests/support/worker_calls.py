"""Calls for a worker on a broker, and what its topics say about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from tests.support.kafka import Message, Topics
from worker.call_files import CallAudio, read_call
from worker.messages import RawMessage
from worker.playback import CallPlan

DATA = Path(__file__).parents[1] / "data"
CALLS = tuple(sorted((DATA / "calls").glob("*.wav")))
RECORDINGS = tuple(sorted((DATA / "recordings").glob("voicemail-*")))


def excerpt(number: int, start_s: float, seconds: float) -> CallAudio:
    """A part of a bundled call, 8 kHz stereo µ-law."""
    audio = read_call(CALLS[number % len(CALLS)])
    start = round(start_s * audio.sample_rate)
    return replace(audio, data=audio.piece(start, round(seconds * audio.sample_rate)))


def call_messages(
    topics: Topics, session_id: str, audio: CallAudio, chunk_ms: int = 200
) -> list[Message]:
    """The messages of a call, its end event last."""
    return [
        Message(topics.chunks, planned.session_id.encode(), planned.value, planned.headers)
        for planned in CallPlan(session_id, audio, chunk_ms).messages()
    ]


def side_by_side(calls: Sequence[Iterable[Message]]) -> Iterator[Message]:
    """The messages of all calls in turn, as simultaneous calls produce them."""
    lanes = [iter(call) for call in calls]
    while lanes:
        for lane in list(lanes):
            message = next(lane, None)
            if message is None:
                lanes.remove(lane)
            else:
                yield message


def record_id(raw: RawMessage) -> str:
    """The id of an output record."""
    return dict(raw.headers)["ce_id"].decode()  # type: ignore[union-attr]


def body(raw: RawMessage) -> dict[str, object]:
    """The JSON of an output record."""
    decoded: dict[str, object] = orjson.loads(raw.value or b"")
    return decoded


def readings(raw: RawMessage) -> list[str]:
    """The texts of a transcript's alternatives, the best first."""
    return [
        alternative["transcript"] for alternative in orjson.loads(raw.value or b"")["alternatives"]
    ]


def said(records: Iterable[RawMessage]) -> dict[str, set[tuple[object, ...]]]:
    """What finals say under each id, as far as the equality promise goes."""
    texts: dict[str, set[tuple[object, ...]]] = {}
    for raw in records:
        record = body(raw)
        promised = (
            orjson.dumps([_without_confidences(a) for a in record["alternatives"]]),  # type: ignore[attr-defined]
            *(
                orjson.dumps(record[name])
                for name in ("start_sample", "end_sample", "end_reason", "role")
            ),
        )
        texts.setdefault(record_id(raw), set()).add((record["segment_index"], *promised))
    return texts


def _without_confidences(alternative: dict[str, object]) -> dict[str, object]:
    """A reading; how sure the model is may differ in its last digit."""
    reading = {name: value for name, value in alternative.items() if name != "confidence"}
    words = reading.get("words")
    if isinstance(words, list):
        reading["words"] = [_without_confidences(word) for word in words]
    return reading


def ended(records: Iterable[RawMessage]) -> dict[str, dict[str, object]]:
    """The ended event of each session."""
    events = [body(raw) for raw in records]
    return {str(e["session_id"]): e for e in events if e.get("event") == "ended"}


def all_ended(sessions: int):  # type: ignore[no-untyped-def]
    """For `consume_all`: true once so many sessions have ended."""

    def reached(records: list[RawMessage]) -> bool:
        return len(ended(records)) >= sessions

    return reached
