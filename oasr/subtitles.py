"""Transcripts as text, JSON, SRT and WebVTT."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Final

from oasr.engine.request import Evidence
from oasr.subtitle_cues import Cue, cues


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
    """SubRip; the channel before each cue where there are several."""
    return "".join(
        f"{number}\n{clock(cue.start_ms, ',')} --> {clock(cue.end_ms, ',')}\n"
        f"{f'[{channel}] ' if transcript.channels > 1 else ''}{cue.text}\n\n"
        for number, (channel, cue) in enumerate(_cues(transcript), start=1)
    )


def to_vtt(transcript: Transcript) -> str:
    """WebVTT; the channel as the voice of each cue where there are several."""
    found = (
        f"{clock(cue.start_ms)} --> {clock(cue.end_ms)}\n"
        f"{f'<v Channel {channel}>' if transcript.channels > 1 else ''}{_escaped(cue.text)}\n\n"
        for channel, cue in _cues(transcript)
    )
    return "WEBVTT\n\n" + "".join(found)


def _cues(transcript: Transcript) -> list[tuple[int, Cue]]:
    """Cues by start, with their channels."""
    found = [
        (segment.channel, cue)
        for segment in transcript.in_order()
        for cue in cues(segment.text, segment.start_ms, segment.end_ms, segment.words)
    ]
    return sorted(found, key=lambda pair: (pair[1].start_ms, pair[0]))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


FORMATS: Final[Mapping[str, Callable[[Transcript], str]]] = MappingProxyType(
    {"text": to_text, "json": to_json, "srt": to_srt, "vtt": to_vtt}
)
