"""Transcripts as text, JSON, SRT and WebVTT."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Final

from oasr.engine.request import Evidence


@dataclass(frozen=True, slots=True)
class Word:
    """One word; milliseconds since the start of the file."""

    text: str
    start_ms: int
    end_ms: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Segment:
    """One utterance of one channel; milliseconds since the start of the file."""

    channel: int
    start_ms: int
    end_ms: int
    text: str
    confidence: float  # mean posterior of the tokens
    words: tuple[Word, ...] = ()
    alternatives: tuple[str, ...] = ()  # other readings, the best first
    evidence: Evidence | None = None  # of models that may invent or leave out text


@dataclass(slots=True)
class Transcript:
    """What was found in one file."""

    file: str
    model: str
    sample_rate: int = 0
    channels: int = 0
    duration_ms: int = 0
    segments: list[Segment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def in_order(self) -> list[Segment]:
        """The segments by start, then by channel."""
        return sorted(self.segments, key=lambda s: (s.start_ms, s.channel))


def clock(ms: int, decimal_mark: str = ".") -> str:
    """`HH:MM:SS.mmm`."""
    seconds, milliseconds = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{decimal_mark}{milliseconds:03}"


def to_text(transcript: Transcript) -> str:
    """A line a segment; with the channel before it where there are several."""
    several = transcript.channels > 1
    return "".join(
        f"{f'[{s.channel}] ' if several else ''}{s.text}\n" for s in transcript.in_order()
    )


def to_json(transcript: Transcript) -> str:
    """One JSON object on one line."""
    document = asdict(transcript)
    document["segments"] = [asdict(segment) for segment in transcript.in_order()]
    return json.dumps(document, ensure_ascii=False) + "\n"


def to_srt(transcript: Transcript) -> str:
    """SubRip; a cue a segment."""
    return "".join(
        f"{number}\n{clock(s.start_ms, ',')} --> {clock(s.end_ms, ',')}\n"
        f"{_cue(s, transcript.channels)}\n\n"
        for number, s in enumerate(transcript.in_order(), start=1)
    )


def to_vtt(transcript: Transcript) -> str:
    """WebVTT; a cue a segment, the channel as its voice where there are several."""
    cues = (
        f"{clock(s.start_ms)} --> {clock(s.end_ms)}\n{_voice(s, transcript.channels)}\n\n"
        for s in transcript.in_order()
    )
    return "WEBVTT\n\n" + "".join(cues)


def _cue(segment: Segment, channels: int) -> str:
    return f"[{segment.channel}] {segment.text}" if channels > 1 else segment.text


def _voice(segment: Segment, channels: int) -> str:
    text = segment.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<v Channel {segment.channel}>{text}" if channels > 1 else text


FORMATS: Final[Mapping[str, Callable[[Transcript], str]]] = MappingProxyType(
    {"text": to_text, "json": to_json, "srt": to_srt, "vtt": to_vtt}
)
