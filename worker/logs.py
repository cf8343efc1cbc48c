"""Log lines on standard error, one event each, fit for a terminal and for a collector."""

from __future__ import annotations

import logging
import re
import sys
from typing import Final, Literal, TextIO

import orjson

from worker.cloudevents import timestamp

# C0 (but for the newline and tab of tracebacks), DEL, C1, and separators that split lines.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_BREAKING: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure(level: str, format: Literal["text", "json"], stream: TextIO | None = None) -> None:
    """Sends every logger's lines of at least `level` to `stream`, by default standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, JsonFormatter | TextFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(True)


class TextFormatter(logging.Formatter):
    """`<time> <level> <logger>: <message>`, with control characters of the message escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it where there is one."""
        message = escape(record.getMessage())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}"
        trace = _trace(self, record)
        return f"{line}\n{_CONTROL.sub(_escaped, trace)}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and error for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without its newline."""
        fields = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": escape(record.getMessage()),
        }
        trace = _trace(self, record)
        if trace:
            fields["error"] = trace
        return orjson.dumps({name: _encodable(text) for name, text in fields.items()}).decode()


def escape(text: str) -> str:
    """The text with control characters written as `\\x1b` and the like."""
    return _LINE_BREAKING.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _time(record: logging.LogRecord) -> str:
    return timestamp(int(record.created * 1000))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
