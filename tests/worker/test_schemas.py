"""The schemas of what comes in say what the codec does."""

from __future__ import annotations

import json
from dataclasses import fields as dc_fields

import pytest
from jsonschema import Draft202012Validator

from tests.support.messages import message
from tests.support.schemas import SCHEMAS, validator
from worker.codec import ChunkDefaults, parse_chunk, parse_file
from worker.decoding_options import AskedDecoding
from worker.endpointing_options import AskedEndpointing
from worker.errors import CodecError, ErrorCode
from worker.options import SessionOptions, parse_options

CHUNK_HEADERS = [
    {},
    {"encoding": "mulaw", "channels": "2", "roles": "customer,agent", "sequence": "12"},
    {"encoding": "pcm_f32le", "sample_rate": "48000", "position_ms": "12.25"},
    {"event": "end", "priority": "-2", "traceparent": "nonsense"},
    {"event": "flush"},
    {"roles": " agent "},
    {"channel": "0", "channels": "2"},
    {"encoding": "opus"},
    {"channels": "0"},
    {"channels": "9"},
    {"channels": "two"},
    {"channel": "8"},
    {"roles": ""},
    {"roles": "a,,b"},
    {"roles": "agent;customer"},
    {"sequence": "-1"},
    {"sequence": "1.5"},
    {"sequence": " 1"},
    {"position_ms": "1,5"},
    {"discarded_ms": "99999999.5"},
    {"discarded_ms": "100000000"},
    {"discarded_ms": "-1"},
    {"position_ms": "-0"},
    {"event": "hangup"},
    {"priority": "high"},
]
FILE_JOBS = [
    {"uri": "file:///data/a.wav"},
    {"uri": "s3://bucket/a", "sha256": "0" * 64, "size_bytes": 0, "roles": ["agent"]},
    {"uri": "file:///a", "options": {}, "priority": 1},
    {"uri": "file:///a", "roles": "agent,customer", "sha256": None},
    {"uri": "a.wav"},
    {"uri": "file:///a b"},
    {"uri": "file:///a", "sha256": "0" * 63},
    {"uri": "file:///a", "size_bytes": -1},
    {"uri": "file:///a", "size_bytes": 1.5},
    {"uri": "file:///a", "roles": []},
    {"uri": "file:///a", "roles": [1]},
    {"uri": "file:///a", "options": []},
    {"uri": "file:///a", "other": 1},
    {},
]


OPTIONS = [
    {},
    {"language": "en-US", "partials": False, "emit_empty": True, "lenient": False},
    {"language": "auto"},
    {"language": "english please"},
    {"min_silence_ms": 100, "max_utterance_ms": 60_000, "no_speech_ms": 500},
    {"min_silence_ms": 99},
    {"max_utterance_ms": 60_001},
    {"no_speech_ms": "1000"},
    {"endpointing": {"min_silence_ms": 300}},
    {"pre_roll_ms": 0, "quiet_search_ms": 200, "gate": True, "vad": "energy"},
    {"endpointing": {"pre_roll_ms": 2000, "quiet_search_ms": 30_000, "gate": False}},
    {"endpointing": {"vad": "silero"}},
    {"pre_roll_ms": 2001},
    {"quiet_search_ms": 199},
    {"gate": "yes"},
    {"vad": "none"},
    {"endpointing": {"silence": 300}},
    {"endpointing": 300},
    {"partials": 1},
    {"min_stability": 0.9},
    {"min_stability": 1},
    {"min_stability": 1.1},
    {"min_stability": -0.1},
    {"min_stability": True},
    {"words": True, "confidences": False},
    {"words": "true"},
    {"max_alternatives": 10},
    {"max_alternatives": 11},
    {"search": "greedy"},
    {"search": "prefix_beam", "beam": 64},
    {"search": "lattice"},
    {"beam": 65},
    {"hotwords": []},
    {"hotwords": ["acme", {"phrase": "zed"}, {"phrase": "kay", "boost": 20}]},
    {"hotwords": ["a"] * 1001},
    {"hotwords": ["  "]},
    {"hotwords": ["x" * 201]},
    {"hotwords": [{"phrase": "a", "boost": 0}]},
    {"hotwords": [{"phrase": "a", "weight": 1}]},
    {"hotwords": [{"boost": 1}]},
    {"hotwords": "acme"},
    {"hotword": ["acme"]},
]


def accepts(parse) -> bool:
    try:
        parse()
    except CodecError:
        return False
    return True


@pytest.mark.parametrize("texts", CHUNK_HEADERS, ids=json.dumps)
def test_the_schema_of_chunk_headers_accepts_what_the_codec_accepts(texts):
    plain = {"encoding": "mulaw", "sample_rate": "8000"}
    value = None if texts.get("event") == "flush" else b"\0"
    raw = message(value, **{**plain, **texts})

    accepted = accepts(lambda: parse_chunk(raw, ChunkDefaults()))

    assert validator("audio-chunk.headers").is_valid(texts) is accepted


@pytest.mark.parametrize("job", FILE_JOBS, ids=json.dumps)
def test_the_schema_of_file_jobs_accepts_what_the_codec_accepts(job):
    raw = message(json.dumps(job).encode())

    assert validator("file-job").is_valid(job) is accepts(lambda: parse_file(raw))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: json.dumps(options)[:80])
def test_the_schema_of_options_accepts_what_the_codec_accepts(options):
    assert validator("options").is_valid(options) is accepts(lambda: parse_options(options))


def test_the_schema_of_options_knows_every_one():
    kinds = (SessionOptions, AskedDecoding, AskedEndpointing)
    fields = {field.name for kind in kinds for field in dc_fields(kind)}
    unwritten = {"asked", "decoding", "second_decoding", "warnings"}

    listed = validator("options").schema["properties"]

    assert listed.keys() == fields - unwritten
    grouped = {field.name for field in dc_fields(AskedEndpointing)}
    assert listed["endpointing"]["properties"].keys() == grouped


def test_the_schema_of_dead_letters_knows_the_codes():
    listed = validator("dead-letter.headers").schema["properties"]["error.code"]["enum"]

    assert listed == [code.value for code in ErrorCode]


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_every_schema_is_one(path):
    schema = json.loads(path.read_text(encoding="utf-8"))

    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$schema"]


def objects(part, at=""):
    """Every object of a schema that has fields, with where it stands; rules for fields are none."""
    if "properties" in part:
        yield at, part
    for name, inner in part.get("properties", {}).items():
        yield from objects(inner, f"{at}.{name}")
    for name, inner in part.get("$defs", {}).items():
        yield from objects(inner, f"{at}${name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(part.get(keyword), dict):
            yield from objects(part[keyword], f"{at}[]")
    for number, branch in enumerate(part.get("oneOf", [])):
        yield from objects(branch, f"{at}|{number}")


def described(part, root):
    if "description" in part or "$ref" not in part:
        return "description" in part
    target = root
    for step in part["$ref"].removeprefix("#/").split("/"):
        target = target[step]
    return described(target, root)


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.name)
def test_every_field_is_described_and_every_object_closed(path):
    schema = json.loads(path.read_text(encoding="utf-8"))
    # These stand beside the headers of others.
    open_ = {"audio-chunk.headers.schema.json", "dead-letter.headers.schema.json"}

    for at, part in objects(schema):
        silent = [
            name for name, inner in part["properties"].items() if not described(inner, schema)
        ]
        assert silent == [], at
        assert path.name in open_ or part.get("additionalProperties") is False, at


def test_every_schema_has_a_name_of_its_own():
    schemas = [json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")]

    assert len({schema["$id"] for schema in schemas}) == len(schemas)
    assert all(schema["$id"].startswith("urn:oasr:") for schema in schemas)
    assert all(schema["$id"].endswith(":v1") for schema in schemas)
