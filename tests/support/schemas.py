"""The published schemas, ready to check with."""

from __future__ import annotations

import json
from pathlib import Path

from jsonschema import Draft202012Validator

from worker.messages import OutRecord

SCHEMAS = Path(__file__).parents[2] / "schemas"


def validator(name: str) -> Draft202012Validator:
    """The validator of `schemas/<name>.schema.json`."""
    text = (SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(
        json.loads(text), format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def body(record: OutRecord) -> dict:
    """The JSON value of a record."""
    decoded = json.loads(record.value)
    assert isinstance(decoded, dict)
    return decoded


def header_texts(record: OutRecord) -> dict[str, str]:
    """The headers of a record as text; a name that stands twice is an error."""
    names = [name for name, _ in record.headers]
    assert len(set(names)) == len(names)
    return {name: (value or b"").decode() for name, value in record.headers}
