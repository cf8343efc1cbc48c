"""One event is one line, whatever a message holds."""

from __future__ import annotations

import io
import json
import logging

import pytest

from worker.logs import configure, escape
from worker.tracing import Work, as_log, consumed


@pytest.fixture
def stream():
    """Where the lines go; the root logger is as before afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def test_a_line_has_time_level_logger_and_message(stream):
    configure("INFO", "text", stream)

    logging.getLogger("worker.loop").info("session %s ended", "c-9")

    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "INFO    worker.loop: session c-9 ended\n"


def test_a_json_line_is_an_object(stream):
    configure("INFO", "json", stream)
    # no other handler may get what is no text: processes that share the tests report in UTF-8
    root = logging.getLogger()
    root.handlers[:] = [h for h in root.handlers if getattr(h, "stream", None) is stream]

    logging.getLogger("worker.loop").warning("a\nb \x1b[31m %s", "\ud800")

    assert stream.getvalue().count("\n") == 1
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"]) == ("WARNING", "worker.loop")
    assert line["message"] == "a\\x0ab \\x1b[31m \\ud800"


@pytest.mark.parametrize("format", ["text", "json"])
def test_control_characters_cannot_forge_lines(stream, format):
    configure("INFO", format, stream)

    logging.getLogger("x").error("key %s", "a\n2026 INFO forged\r\x1b]0;\x07\x9b\u2028")

    assert len(stream.getvalue().splitlines()) == 1
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(stream.getvalue())


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_traceback_is_part_of_its_event(stream, format):
    configure("INFO", format, stream)

    try:
        raise ValueError("bad\x1bvalue")
    except ValueError:
        logging.getLogger("x").exception("failed")

    assert "Traceback" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_less_severe_lines_are_left_out(stream):
    configure("WARNING", "text", stream)

    logging.getLogger("x").info("quiet")

    assert stream.getvalue() == ""


def test_configuring_again_replaces_the_lines_and_does_not_double_them(stream):
    configure("INFO", "text", stream)
    configure("INFO", "json", stream)

    logging.getLogger("x").info("once")

    assert len(stream.getvalue().splitlines()) == 1


def test_plain_text_is_left_alone():
    assert escape("naïve 日本 🎧 a\tb") == "naïve 日本 🎧 a\\x09b"


def test_fields_stand_beside_the_message_and_cannot_take_its_place(stream):
    configure("INFO", "json", stream)
    hostile = 'c\n{"level": "ERROR"}\u2028' + "x" * 5_000

    fields = {"session_id": hostile, "offset": 7, "level": "DEBUG", "message": "forged"}
    logging.getLogger("x").info("done", extra={"fields": fields})

    assert len(stream.getvalue().splitlines()) == 1
    line = json.loads(stream.getvalue())
    assert (line["level"], line["message"], line["offset"]) == ("INFO", "done", 7)
    assert line["session_id"].startswith("c\\x0a{")
    assert len(line["session_id"]) < 300


def test_fields_are_readable_in_a_terminal_and_stay_on_the_line(stream):
    configure("INFO", "text", stream)

    logging.getLogger("x").info("done", extra={"fields": {"session_id": "a\nb\x1b", "offset": 7}})

    (line,) = stream.getvalue().splitlines()
    assert line.endswith("x: done session_id='a\\\\x0ab\\\\x1b' offset=7")


@pytest.mark.parametrize(("level", "told"), [("INFO", 1), ("DEBUG", 2)])
def test_work_that_is_done_is_a_line_with_its_session_and_trace_and_without_text(
    stream, level, told
):
    configure(level, "json", stream)
    place = consumed("calls", 3, 42)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    as_log(Work("file", trace, 1_000, 3_500, {**place, "oasr.session_id": "mail"}))
    as_log(Work("segment", None, 1_000, 3_500, {**place, "oasr.session_id": "c"}))

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == told
    lines[0].pop("time")
    assert lines[0] == {
        "level": "INFO",
        "logger": "worker.tracing",
        "message": "a file is done",
        "topic": "calls",
        "partition": 3,
        "offset": 42,
        "session_id": "mail",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "duration_ms": 2_500,
    }
