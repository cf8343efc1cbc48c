"""The calls that are bundled with the worker, and whether all that was said in them came out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from oasr.decoding.wer import Wer
from tests.support.kafka import Message
from tests.support.worker_calls import body, ended, said
from worker.call_files import read_call
from worker.messages import RawMessage
from worker.playback import CallPlan

CALLS = Path(__file__).parents[2] / "worker" / "assets" / "calls"
# what the bundled model gets wrong of these calls is less than half of this
LARGEST_WER = 0.1


def bundled_calls(topic: str, chunk_ms: int = 100) -> list[list[Message]]:
    """The messages of each call, named as `oasr-worker produce` names sessions."""
    return [
        [
            Message(topic, planned.session_id.encode(), planned.value, planned.headers)
            for planned in CallPlan(
                f"{path.stem}-test-{number}", read_call(path), chunk_ms
            ).messages()
        ]
        for number, path in enumerate(sorted(CALLS.glob("*.wav")))
    ]


def recording_of(session_id: str) -> Path:
    """The recording that a session of `oasr-worker produce` plays."""
    stem = session_id.rsplit("-", 2)[0]
    return CALLS / f"{stem}.wav"


def assert_all_was_heard(
    transcripts: Iterable[RawMessage], events: Iterable[RawMessage]
) -> dict[str, int]:
    """Finals of each session, after these were held against the recordings and the contract:

    every sample of a call is accounted for, every final that its end states is there, a record that
    came twice says the same twice, and the text is that of the recording.
    """
    records = list(transcripts)
    texts = said(records)
    assert all(len(versions) == 1 for versions in texts.values())
    errors = Wer()
    finals = {}
    for session, event in ended(events).items():
        path = recording_of(session)
        audio = read_call(path)
        assert event["reason"] == "end"
        for totals in event["totals"]:  # type: ignore[attr-defined]
            assert totals["received"]["samples"] == audio.frames
        assert event["finals"] == sum(name.startswith(f"{session}:") for name in texts)
        finals[session] = int(event["finals"])  # type: ignore[call-overload]
        for channel, reference in enumerate(_references(path, audio.channels)):
            errors.add(reference, _text(session, channel, records))
    assert errors.rate < LARGEST_WER
    return finals


def _references(path: Path, channels: int) -> list[str]:
    segments = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["segments"]
    return [
        " ".join(segment["text"] for segment in segments if segment["channel"] == channel)
        for channel in range(channels)
    ]


def _text(session: str, channel: int, records: list[RawMessage]) -> str:
    mine = {}
    for raw in records:
        final = body(raw)
        if final["session_id"] == session and final["channel"] == channel:
            mine[final["start_sample"]] = final["alternatives"][0]["transcript"]  # type: ignore[index]
    return " ".join(text for _, text in sorted(mine.items()))
