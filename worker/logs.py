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
_LONGEST: Final = 256  # characters of a field: session ids are anybody's
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
    """`<time> <level> <logger>: <message> <field>=<value> …`, with control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it where there is one."""
        message = escape(record.getMessage())
        fields = "".join(f" {name}={value!r}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}{fields}"
        trace = _trace(self, record)
        return f"{line}\n{_CONTROL.sub(_escaped, trace)}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, fields, and error for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without its newline."""
        line: dict[str, str | int] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": escape(record.getMessage()),
        }
        line = {**_fields(record), **line}
        trace = _trace(self, record)
        if trace:
            line["error"] = trace
        return orjson.dumps({name: _encodable(value) for name, value in line.items()}).decode()


def escape(text: str) -> str:
    """The text with control characters written as `\\x1b` and the like."""
    return _LINE_BREAKING.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _fields(record: logging.LogRecord) -> dict[str, str | int]:
    """What `extra={"fields": …}` says of the event beside its message."""
    fields: dict[str, str | int] = getattr(record, "fields", {})
    return {
        name: escape(value[:_LONGEST]) if isinstance(value, str) else value
        for name, value in fields.items()
    }


def _encodable(value: str | int) -> str | int:
    if isinstance(value, int):
        return value
    return value.encode("utf-8", "backslashreplace").decode()


def _time(record: logging.LogRecord) -> str:
    return timestamp(int(record.created * 1000))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
