"""Did everything arrive, and how well? The demo's books and its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from oasr.decoding.wer import Wer
from worker.messages import RawMessage


@dataclass(frozen=True, slots=True)
class Expected:
    """A call or recording that was sent, with the known text of each channel."""

    id: str
    texts: tuple[str, ...]
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class _Final:
    channel: int
    start_sample: int
    text: str
    partition: int
    last_offset: int
    arrived_s: float


@dataclass(slots=True)
class _Seen:
    expected: Expected
    finals: dict[str, _Final] = field(default_factory=dict)  # by record id: repeats are equal
    closing: dict[str, int] = field(default_factory=dict)  # finals stated, by event id

    @property
    def closed(self) -> bool:
        return bool(self.closing)

    @property
    def complete(self) -> bool:
        return self.closed and sum(self.closing.values()) == len(self.finals)

    def text(self, channel: int) -> str:
        mine = sorted(
            (final for final in self.finals.values() if final.channel == channel),
            key=lambda final: final.start_sample,
        )
        return " ".join(final.text for final in mine)


class Tally:
    """Takes what was sent and what came back; times are seconds of one monotonic clock."""

    def __init__(self, expected: Sequence[Expected]) -> None:
        self._seen = {one.id: _Seen(one) for one in expected}
        self._produced_s: dict[tuple[int, int], float] = {}
        self.dead_letters: list[str] = []

    def produced(self, partition: int, offset: int, at_s: float) -> None:
        """A chunk got this place in the log; it was handed to the producer at `at_s`."""
        self._produced_s[partition, offset] = at_s

    def see(self, message: RawMessage, at_s: float) -> None:
        """Takes one record of any output topic."""
        headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
        if "error.code" in headers:
            self.dead_letters.append(headers["error.code"])
            return
        body = orjson.loads(message.value or b"{}")
        seen = self._seen.get((message.key or b"").decode(errors="replace"))
        if seen is None:
            return
        if body.get("is_final"):
            seen.finals[headers["ce_id"]] = _final(body, at_s)
        elif body.get("event") in ("ended", "completed"):
            seen.closing[headers["ce_id"]] = int(body["finals"])

    @property
    def closed(self) -> bool:
        """Whether every call has ended and every file is completed."""
        return all(seen.closed for seen in self._seen.values())

    @property
    def complete(self) -> bool:
        """Whether, besides, as many finals came as those events state."""
        return all(seen.complete for seen in self._seen.values())

    def problems(self) -> list[str]:
        """What is missing or does not match, one line each; empty when all is well."""
        lines = [f"dead letter: {code}" for code in self.dead_letters]
        for name, seen in self._seen.items():
            event = "completed" if seen.expected.is_file else "ended"
            if not seen.closed:
                lines.append(f"{name}: no {event} event")
            elif not seen.complete:
                stated = sum(seen.closing.values())
                lines.append(
                    f"{name}: {event} states {stated} finals, {len(seen.finals)} were received"
                )
        return lines

    def summary(self) -> Summary:
        """The figures as of now."""
        calls, files = Wer(), Wer()
        latencies_ms: list[float] = []
        for seen in self._seen.values():
            wer = files if seen.expected.is_file else calls
            for channel, reference in enumerate(seen.expected.texts):
                wer.add(reference, seen.text(channel))
            if not seen.expected.is_file:
                latencies_ms += self._latencies_ms(seen)
        return Summary(
            calls=sum(not seen.expected.is_file for seen in self._seen.values()),
            calls_ended=sum(s.closed and not s.expected.is_file for s in self._seen.values()),
            files=sum(seen.expected.is_file for seen in self._seen.values()),
            files_completed=sum(s.closed and s.expected.is_file for s in self._seen.values()),
            segments=sum(len(seen.finals) for seen in self._seen.values()),
            calls_wer=calls,
            files_wer=files,
            latencies_ms=tuple(sorted(latencies_ms)),
        )

    def _latencies_ms(self, seen: _Seen) -> list[float]:
        return [
            1000 * (final.arrived_s - produced_s)
            for final in seen.finals.values()
            if (produced_s := self._produced_s.get((final.partition, final.last_offset)))
            is not None
        ]


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo in figures.

    A latency runs from the producing of the message that completed the utterance (with it the
    endpoint could be known) to the reader having the final.
    """

    calls: int
    calls_ended: int
    files: int
    files_completed: int
    segments: int
    calls_wer: Wer
    files_wer: Wer
    latencies_ms: tuple[float, ...]

    def latency_ms(self, percent: float) -> float | None:
        """A percentile of the final latencies by nearest rank; None without any."""
        if not self.latencies_ms:
            return None
        rank = math.ceil(percent / 100 * len(self.latencies_ms))
        return self.latencies_ms[max(0, rank - 1)]


def _final(body: dict[str, Any], at_s: float) -> _Final:
    return _Final(
        channel=body["channel"],
        start_sample=body["start_sample"],
        text=body["alternatives"][0]["transcript"],
        partition=body["source"]["partition"],
        last_offset=body["source"]["last_offset"],
        arrived_s=at_s,
    )
