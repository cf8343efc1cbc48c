"""Schemas keep what released ones promise: nothing goes, and nothing means less or more."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.compatibility import KNOWN, breaks_of_input, breaks_of_output
from tests.support.schemas import SCHEMAS

RELEASED = SCHEMAS / "released" / "v1"
INPUTS = ("audio-chunk.envelope", "audio-chunk.headers", "file-job", "options")
NAMES = sorted(path.name.removesuffix(".schema.json") for path in RELEASED.glob("*.json"))

Mutation = Callable[[dict[str, Any]], object]


def schema(name: str, folder: Path = SCHEMAS) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"{name}.schema.json").read_text("utf-8"))
    return loaded


def breaks(name: str, released: dict[str, Any], current: dict[str, Any]) -> list[str]:
    compare = breaks_of_input if name in INPUTS else breaks_of_output
    return compare(released, current)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_keeps_what_the_released_one_promises(name: str) -> None:
    assert breaks(name, schema(name, RELEASED), schema(name)) == []


def test_every_input_has_been_released() -> None:
    assert set(INPUTS) < set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_check_knows_every_keyword_of_a_schema(name: str) -> None:
    def unknown(part: Any) -> set[str]:
        """Keywords at places where a schema stands."""
        if not isinstance(part, dict):
            return set()
        found = part.keys() - KNOWN
        for keyword in ("properties", "patternProperties", "$defs"):
            for value in part.get(keyword, {}).values():
                found |= unknown(value)
        for keyword in ("items", "additionalProperties", "if", "then", "else"):
            found |= unknown(part.get(keyword))
        for keyword in ("oneOf", "anyOf", "allOf"):
            for value in part.get(keyword, []):
                found |= unknown(value)
        return found

    assert unknown(schema(name)) == set()


def changed(name: str, mutate: Mutation) -> tuple[dict[str, Any], dict[str, Any]]:
    before = schema(name, RELEASED)
    after = copy.deepcopy(before)
    mutate(after)
    assert after != before
    return before, after


def field(*path: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def find(whole: dict[str, Any]) -> dict[str, Any]:
        for step in path:
            whole = whole["items"] if step == "[]" else whole["properties"][step]
        return whole

    return find


def put(keyword: str, value: Any, *path: str) -> Mutation:
    return lambda whole: field(*path)(whole).__setitem__(keyword, value)


def drop(keyword: str, *path: str) -> Mutation:
    return lambda whole: field(*path)(whole).pop(keyword)


def forget(name: str, *path: str) -> Mutation:
    return lambda whole: field(*path)(whole)["properties"].pop(name)


def add(name: str, value: dict[str, Any], *path: str) -> Mutation:
    return lambda whole: field(*path)(whole)["properties"].__setitem__(name, value)


def demand(name: str) -> Mutation:
    return lambda whole: whole.setdefault("required", []).append(name)


def release(name: str) -> Mutation:
    return lambda whole: whole["required"].remove(name)


def value(text: object, *path: str, gone: bool = False) -> Mutation:
    def mutate(whole: dict[str, Any]) -> None:
        listed = field(*path)(whole)["enum"]
        listed.remove(text) if gone else listed.append(text)

    return mutate


def define(name: str, keyword: str, bound: object) -> Mutation:
    return lambda whole: whole["$defs"][name].__setitem__(keyword, bound)


WORD = ("alternatives", "[]", "words", "[]")
BREAKING: list[tuple[str, str, Mutation]] = [
    ("a header goes", "audio-chunk.headers", forget("position_ms")),
    ("a header must be there", "audio-chunk.headers", demand("encoding")),
    ("an encoding goes", "audio-chunk.headers", value("alaw", "encoding", gone=True)),
    ("fewer digits", "audio-chunk.headers", put("pattern", "^[0-9]{1,9}$", "sequence")),
    ("shorter roles", "audio-chunk.headers", put("maxLength", 100, "roles")),
    ("an option goes", "options", forget("words")),
    ("an option has another type", "options", put("type", "string", "words")),
    ("fewer alternatives", "options", put("maximum", 5, "max_alternatives")),
    ("more alternatives at least", "options", put("minimum", 2, "max_alternatives")),
    ("a shorter pause is the limit", "options", define("min_silence_ms", "maximum", 5000)),
    ("a grouped option goes", "options", forget("gate", "endpointing")),
    ("an option gets a pattern", "options", put("pattern", "^a", "tenant")),
    ("null is refused", "file-job", put("type", "string", "sha256")),
    ("the size must be said", "file-job", demand("size_bytes")),
    ("roles as a text are refused", "file-job", lambda s: field("roles")(s)["oneOf"].pop(1)),
    ("a field goes", "transcript", forget("role")),
    ("a word's time goes", "transcript", forget("end", *WORD)),
    ("a field may lack", "transcript", release("channel")),
    ("a number is a text", "transcript", put("type", "string", "start")),
    ("an integer is a number", "transcript", put("type", "number", "start_sample")),
    ("null appears", "transcript", put("type", ["integer", "null"], "channel")),
    ("more channels", "transcript", put("maximum", 16, "channels")),
    ("a bound goes", "transcript", drop("minimum", "start")),
    ("an empty list", "transcript", drop("minItems", "alternatives")),
    ("the id has another form", "transcript", put("pattern", "^.*$", "segment_id")),
    ("another name of the record", "transcript", put("const", "oasr.transcript.v2", "schema")),
    ("a partial has a reason", "transcript", drop("then")),
    ("an event may lack totals", "session-event", lambda s: s["allOf"].pop()),
    ("the reason is no rule", "session-event", lambda s: s["allOf"][0]["then"].pop("required")),
    ("a keyword nobody compares", "session-event", put("dependentRequired", {"a": ["b"]})),
    ("amounts of any size", "file-completed", lambda s: _amount(s).pop("minimum")),
    ("a form that is new", "dead-letter.reference", lambda s: s["oneOf"].append({"type": "null"})),
]
HARMLESS: list[tuple[str, str, Mutation]] = [
    ("another header", "audio-chunk.headers", add("tenant", {"type": "string"})),
    ("another encoding", "audio-chunk.headers", value("opus", "encoding")),
    ("longer roles", "audio-chunk.headers", put("maxLength", 2048, "roles")),
    ("another option", "options", add("punctuate", {"type": "boolean"})),
    ("more alternatives", "options", put("maximum", 20, "max_alternatives")),
    ("no limit at all", "options", drop("maximum", "max_alternatives")),
    ("any text is a tenant", "options", drop("pattern", "tenant")),
    (
        "another kind of roles",
        "file-job",
        lambda s: field("roles")(s)["oneOf"].append({"const": 1}),
    ),
    ("the place may lack", "file-job", release("uri")),
    ("words for people", "file-job", put("description", "anything", "uri")),
    ("a new field", "transcript", add("language", {"type": "string"})),
    ("a new field of words", "transcript", add("speaker", {"type": "integer"}, *WORD)),
    ("another reason, where they grow", "transcript", value("limit", "end_reason")),
    ("a field that is always there", "transcript", demand("stability")),
    ("fewer channels", "transcript", put("maximum", 2, "channels")),
    ("no null any more", "transcript", put("type", "string", "role")),
    ("another event", "session-event", value("paused", "event")),
    ("another rule", "session-event", lambda s: s["allOf"].append({"required": ["origin"]})),
    ("another code", "dead-letter.headers", value("too_loud", "error.code")),
]


def _amount(whole: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = whole["$defs"]["amount"]["properties"]["samples"]
    return found


@pytest.mark.parametrize(
    ("name", "mutate"), [case[1:] for case in BREAKING], ids=[case[0] for case in BREAKING]
)
def test_a_change_that_breaks_somebody_is_found(name: str, mutate: Mutation) -> None:
    assert breaks(name, *changed(name, mutate))


@pytest.mark.parametrize(
    ("name", "mutate"), [case[1:] for case in HARMLESS], ids=[case[0] for case in HARMLESS]
)
def test_a_change_that_breaks_nobody_passes(name: str, mutate: Mutation) -> None:
    assert breaks(name, *changed(name, mutate)) == []
