from __future__ import annotations

import io
from typing import Any

import orjson
import pytest
from rich.console import Console

from worker.live import LiveTranscripts
from worker.messages import RawMessage
from worker.transcript_view import TranscriptView, clock, printable, session_label


def record(body: dict[str, Any], **headers: str) -> RawMessage:
    pairs = tuple((name.replace("_", "."), text.encode()) for name, text in headers.items())
    return RawMessage("out", 1, 7, 0, b"call-1", orjson.dumps(body), pairs)


def transcript(text: str, is_final: bool = False, segment: str = "s1", **other: Any) -> RawMessage:
    body = {
        "session_id": "call-1",
        "segment_id": segment,
        "channel": 1,
        "role": "customer",
        "start": 61.25,
        "end": 63.0,
        "is_final": is_final,
        "alternatives": [{"transcript": text}],
    }
    return record(body | other)


def ended(session_id: str = "call-1") -> RawMessage:
    return record({"event": "ended", "session_id": session_id, "reason": "end", "finals": 3})


def shown(messages: list[RawMessage], terminal: bool, plain: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, color_system=None)
    with LiveTranscripts(console, plain) as live:
        live.show(messages)
    return out.getvalue()


def test_a_final_is_shown_with_session_times_role_and_text() -> None:
    (line,), partials = TranscriptView().see(transcript("hello there", is_final=True))

    assert line.plain.split() == ["call-1", "01:01.2–01:03.0", "customer", "hello", "there"]
    assert partials == []


def test_partials_stand_below_until_their_final_replaces_them() -> None:
    view = TranscriptView()
    console = Console(width=120)

    def below() -> str:
        with console.capture() as capture:
            console.print(view)
        return capture.get()

    view.see(transcript("hel"))
    view.see(transcript("other", segment="s2"))
    view.see(transcript("hello"))
    assert [line.split()[-1] for line in below().splitlines()] == ["hello", "other"]

    view.see(transcript("hello there", is_final=True))
    assert [line.split()[-1] for line in below().splitlines()] == ["other"]


def test_the_end_of_a_session_takes_its_partials_away() -> None:
    view = TranscriptView()
    view.see(transcript("hel"))
    view.see(transcript("stays", session_id="call-2", segment="x"))

    (line,), _ = view.see(ended())

    assert line.plain.split() == ["call-1", "──", "ended", "end,", "3", "finals"]
    console = Console(width=120)
    with console.capture() as capture:
        console.print(view)
    assert "stays" in capture.get()
    assert "hel" not in capture.get()


def test_a_partial_that_comes_behind_its_final_is_not_shown() -> None:
    view = TranscriptView()
    view.see(transcript("hello there", is_final=True))

    assert view.see(transcript("hello")) == ([], [])


def test_a_segment_that_a_later_one_follows_is_not_shown_any_more() -> None:
    view = TranscriptView()
    view.see(transcript("never final"))
    view.see(transcript("next", segment="s2", start=70.0))
    console = Console(width=120)

    with console.capture() as capture:
        console.print(view)

    assert [line.split()[-1] for line in capture.get().splitlines()] == ["next"]


def test_more_partials_than_the_screen_has_lines_show_the_newest() -> None:
    view = TranscriptView()
    for number in range(50):
        view.see(transcript(f"text{number}", segment=f"s{number}"))
    console = Console(width=120, height=10, force_terminal=True, color_system=None)

    with console.capture() as capture:
        console.print(view)

    assert [line.split()[-1] for line in capture.get().splitlines()] == [
        f"text{n}" for n in range(42, 50)
    ]


def test_a_dead_letter_shows_its_code_and_never_its_value() -> None:
    message = RawMessage(
        "dead", 0, 1, 0, b"k", b"secret", (("error.code", b"odd_bytes"), ("error.message", b"why"))
    )

    (line,), _ = TranscriptView().see(message)

    assert "odd_bytes: why" in line.plain
    assert "secret" not in line.plain


@pytest.mark.parametrize(
    "value", [b"", b"no json", b"[]", b"{}", b'{"alternatives": []}', b'{"event": "ended"}', None]
)
def test_a_record_of_an_unknown_schema_is_told_by_its_place(value: bytes | None) -> None:
    (line,), _ = TranscriptView().see(RawMessage("out", 1, 7, 0, None, value))

    assert line.plain == "record of an unknown schema at out/1/7"


def test_texts_cannot_command_the_terminal_or_the_markup() -> None:
    hostile = "\x1b[2J[red]\r\n\u202eok"

    text = shown([transcript(hostile, is_final=True)], terminal=False)

    assert "\\x1b[2J[red]\\r\\n\\u202eok" in text
    assert text.count("\n") == 1


def test_without_a_terminal_every_partial_and_final_is_a_plain_line() -> None:
    lines = shown(
        [transcript("hel"), transcript("hello"), transcript("hello", is_final=True)], False
    ).splitlines()

    assert len(lines) == 3
    assert [line.split()[3] for line in lines] == ["…", "…", "hello"]
    assert not any("\x1b" in line for line in lines)


def test_on_a_terminal_partials_are_drawn_and_cleared_and_finals_stay() -> None:
    text = shown([transcript("hello", is_final=True), transcript("wor", segment="s2")], True)

    assert "hello" in text
    assert "\x1b[?25l" in text  # the live region hides the cursor …
    assert "\x1b[?25h" in text  # … and gives it back


def test_plain_is_plain_on_a_terminal_too() -> None:
    assert "\x1b[?25l" not in shown([transcript("hel")], terminal=True, plain=True)


def test_names_of_sessions_have_one_width() -> None:
    assert len(session_label("x").plain) == len(session_label("y" * 99).plain) == 20


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00.0"), (59.96, "01:00.0"), (61.25, "01:01.2"), (3600, "60:00.0")]
)
def test_times_are_minutes_seconds_and_tenths(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_printable_text_is_left_as_it_is() -> None:
    assert printable("größer · 日本") == "größer · 日本"
