"""What a reader sees of the output topics: finals as lines that stay, partials until they settle.

Texts come from outside: control characters are shown as escapes and markup means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import orjson
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from worker.messages import RawMessage

_SESSION_WIDTH: Final = 20
_ROLE_WIDTH: Final = 9
_CHANNEL_STYLES: Final = ("cyan", "yellow", "green", "magenta", "blue", "red")
_SESSION_STYLES: Final = ("blue", "green", "magenta", "bright_blue", "bright_green", "white")
_SETTLED_KEPT: Final = 10_000
_QUIET_EVENTS: Final = frozenset(("started",))


@dataclass(frozen=True, slots=True)
class Utterance:
    """A partial or final as it is shown; times in seconds of the call."""

    session_id: str
    segment_id: str
    channel: int
    role: str
    start_s: float
    end_s: float
    text: str
    is_final: bool

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Utterance:
        """From the JSON of a transcript record; raises KeyError, TypeError on another schema."""
        channel = int(body["channel"])
        return cls(
            session_id=str(body["session_id"]),
            segment_id=str(body["segment_id"]),
            channel=channel,
            role=str(body.get("role") or f"channel {channel}"),
            start_s=float(body["start"]),
            end_s=float(body["end"]),
            text=str(body["alternatives"][0]["transcript"]),
            is_final=bool(body["is_final"]),
        )

    def is_followed_by(self, other: Utterance) -> bool:
        """Whether the other one is of the same channel and begins later."""
        return (
            self.session_id == other.session_id
            and self.channel == other.channel
            and self.start_s < other.start_s
        )

    def line(self) -> Text:
        """Session, times, role and text; a partial is dim."""
        style = _CHANNEL_STYLES[self.channel % len(_CHANNEL_STYLES)]
        mark = " " if self.is_final else "…"
        line = Text(no_wrap=False, overflow="fold")
        line.append_text(session_label(self.session_id))
        line.append(f" {clock(self.start_s)}–{clock(self.end_s)} ", style="dim")
        line.append(f"{printable(self.role):<{_ROLE_WIDTH}}", style=style)
        line.append(f"{mark} {printable(self.text)}", style=None if self.is_final else "dim italic")
        return line


class TranscriptView:
    """Follows the output topics; also what `rich` draws below the settled lines.

    Partials come on a topic of their own, so one may come behind its final: it is not shown.
    """

    def __init__(self) -> None:
        self._partials: dict[str, Utterance] = {}
        self._settled: dict[str, None] = {}  # segments and sessions that are over, latest last

    def see(self, message: RawMessage) -> tuple[list[Text], list[Text]]:
        """Takes one record; the lines that stay, and those of partials, that it gives."""
        if any(name == "error.code" for name, _ in message.headers):
            return [_dead_letter_line(message)], []
        try:
            body = orjson.loads(message.value or b"")
            if "alternatives" in body:
                return self._see_utterance(Utterance.from_body(body))
            return self._see_event(body), []
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return [Text(f"record of an unknown schema at {_place(message)}", style="red")], []

    def _see_utterance(self, utterance: Utterance) -> tuple[list[Text], list[Text]]:
        if utterance.is_final:
            self._settle(utterance.segment_id)
            self._partials.pop(utterance.segment_id, None)
            return [utterance.line()], []
        if {utterance.segment_id, utterance.session_id} & self._settled.keys():
            return [], []
        # A segment that a later one follows is over, be it that it got no final.
        for name, shown in list(self._partials.items()):
            if shown.is_followed_by(utterance):
                del self._partials[name]
        self._partials[utterance.segment_id] = utterance
        return [], [utterance.line()]

    def _settle(self, name: str) -> None:
        self._settled[name] = None
        if len(self._settled) > _SETTLED_KEPT:
            del self._settled[next(iter(self._settled))]

    def _see_event(self, body: dict[str, Any]) -> list[Text]:
        event = str(body["event"])
        who = str(body.get("session_id") or body["file_id"])
        if event in ("ended", "completed"):
            self._settle(who)
            for segment_id in [s for s, u in self._partials.items() if u.session_id == who]:
                del self._partials[segment_id]
        if event in _QUIET_EVENTS:
            return []
        details = [str(body[name]) for name in ("reason", "code") if body.get(name)]
        if "finals" in body:
            details.append(f"{body['finals']} finals")
        line = session_label(who)
        line.append(printable(f" ── {event} {', '.join(details)}".rstrip()), style="bold")
        return [line]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or console.height
        newest = list(self._partials.values())[-max(1, height - 2) :]
        for utterance in newest:
            line = utterance.line()
            line.truncate(options.max_width, overflow="ellipsis")
            yield line


def session_label(session_id: str) -> Text:
    """A session's name at a fixed width, in a colour of its own."""
    name = printable(session_id)
    if len(name) > _SESSION_WIDTH:
        name = name[: _SESSION_WIDTH - 1] + "…"
    style = _SESSION_STYLES[crc32(session_id.encode(errors="replace")) % len(_SESSION_STYLES)]
    return Text(f"{name:<{_SESSION_WIDTH}}", style=style)


def clock(seconds: float) -> str:
    """Minutes, seconds and tenths."""
    tenths = round(seconds * 10)
    return f"{tenths // 600:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"


def printable(text: str) -> str:
    """The text with everything a terminal might obey shown as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _dead_letter_line(message: RawMessage) -> Text:
    headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
    key = (message.key or b"(no key)").decode(errors="replace")
    line = session_label(key)
    reason = f" ✗ {headers['error.code']}: {headers.get('error.message', '')}"
    line.append(printable(reason), style="red")
    return line


def _place(message: RawMessage) -> str:
    return printable(f"{message.topic}/{message.partition}/{message.offset}")
