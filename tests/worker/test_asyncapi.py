"""The AsyncAPI document is one, and says what the worker's settings, topics and schemas say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.support.ingress import AUDIOHOOK, EXAMPLES, TELNYX, TWILIO, said_by
from tests.support.messages import message
from tests.support.published_examples import example
from tests.support.schemas import SCHEMAS, validator
from worker.codec import ChunkDefaults, CodecError, parse_chunk
from worker.ingress import READERS
from worker.settings import Settings
from worker.topics import topic_specs

DOCUMENT = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text(encoding="utf-8"))
SPECIFICATION = Path(__file__).parents[1] / "data" / "asyncapi" / "3.0.0.json"


@pytest.fixture(scope="module")
def specification() -> Draft7Validator:
    return Draft7Validator(json.loads(SPECIFICATION.read_text(encoding="utf-8")))


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def test_the_document_is_asyncapi_3(specification: Draft7Validator) -> None:
    assert [error.message for error in specification.iter_errors(DOCUMENT)] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.pop("info"),
        lambda d: d["operations"]["readChunks"].update(action="subscribe"),
        lambda d: d["operations"]["readChunks"].pop("channel"),
        lambda d: d["channels"]["chunks"]["bindings"]["kafka"].update(partition=12),
        lambda d: d["channels"]["chunks"]["bindings"]["kafka"].update(partitions="many"),
        lambda d: d["channels"]["files"].update(topic="oasr.audio.files"),
        lambda d: d["components"]["messages"]["final"].update(schema={}),
    ],
    ids=["no info", "verb of 2", "no channel", "unknown", "no number", "of 2", "no place"],
)
def test_the_check_of_the_document_can_fail(
    specification: Draft7Validator, spoil: Callable[[dict[str, Any]], object]
) -> None:
    spoilt = copy.deepcopy(DOCUMENT)
    spoil(spoilt)

    assert not specification.is_valid(spoilt)


def test_every_reference_leads_somewhere_and_every_schema_is_referred_to() -> None:
    named = set()
    for reference in references(DOCUMENT):
        if reference.startswith("#/"):
            place: Any = DOCUMENT
            for step in reference.removeprefix("#/").split("/"):
                place = place[step]
        else:
            named.add(reference.removeprefix("./"))

    # Options are a text in a header, and an object in the values of the two that refer to it.
    assert named == {path.name for path in SCHEMAS.glob("*.json")} - {"options.schema.json"}


def test_the_channels_are_the_topics_of_the_default_settings() -> None:
    settings = Settings(kafka={"bootstrap_servers": "localhost:9092"})
    specs = {
        spec.name: spec for spec in topic_specs(settings) if spec.name != settings.topics.state
    }

    assert {channel["address"] for channel in DOCUMENT["channels"].values()} == specs.keys()
    for channel in DOCUMENT["channels"].values():
        kafka, spec = channel["bindings"]["kafka"], specs[channel["address"]]
        assert (kafka["topic"], kafka["partitions"]) == (spec.name, spec.partitions)
        limit = kafka["topicConfiguration"].get("max.message.bytes")
        assert spec.config == ({} if limit is None else {"max.message.bytes": str(limit)})


def test_the_groups_are_those_of_the_default_settings() -> None:
    group = Settings(kafka={"bootstrap_servers": "localhost:9092"}).kafka.group
    told = {
        name: operation["bindings"]["kafka"]["groupId"]["default"]
        for name, operation in DOCUMENT["operations"].items()
        if operation["action"] == "receive"
    }

    assert told == {"readChunks": group, "readFiles": f"{group}.files"}


def test_every_message_of_the_examples_has_a_channel() -> None:
    addresses = {channel["address"] for channel in DOCUMENT["channels"].values()}

    for name in ("call", "recording"):
        content = example(name)
        assert {said["topic"] for said in content["messages"] + content["records"]} <= addresses


ENVELOPES = [
    {"encoding": "mulaw", "sample_rate": 8000, "audio": "AAAA"},
    {"encoding": "mulaw", "sample_rate": "8000", "roles": ["agent"], "audio": "", "sequence": 3},
    {"event": "end", "options": {"words": True}, "position_ms": 12.5, "priority": None},
    {"event": "flush", "channel": 1, "channels": 2, "roles": "agent,customer"},
    {"event": "end", "options": []},
    {"event": "end", "rate": 8000},
    {"event": "end", "sequence": True},
    {"event": "end", "roles": {"agent": 0}},
    {"event": 3},
]


@pytest.mark.parametrize("envelope", ENVELOPES, ids=json.dumps)
def test_the_schema_of_envelopes_accepts_what_the_codec_accepts(envelope: dict[str, Any]) -> None:
    raw = message(json.dumps(envelope).encode(), content_type="application/json")
    try:
        parse_chunk(raw, ChunkDefaults())
        accepted = True
    except CodecError:
        accepted = False

    assert validator("audio-chunk.envelope").is_valid(envelope) is accepted


def test_an_envelope_has_the_fields_of_the_headers_and_audio() -> None:
    headers = validator("audio-chunk.headers").schema["properties"].keys()

    fields = validator("audio-chunk.envelope").schema["properties"].keys()

    assert fields == (headers - {"content-type"}) | {"audio"}


# Messages in the shapes of other systems

SHAPES = {
    message["contentType"]: message
    for message in DOCUMENT["components"]["messages"].values()
    if message.get("contentType", "").startswith("application/vnd.")
}
HEADERS = "audio-chunk.headers.schema.json"
REGISTRY: Registry[Any] = Registry().with_resource(
    f"./{HEADERS}",
    DRAFT202012.create_resource(
        # Without its name of its own, by which a reference could not find it.
        {k: v for k, v in json.loads((SCHEMAS / HEADERS).read_text("utf-8")).items() if k != "$id"}
    ),
)


def of_shape(content_type: str, part: str) -> Draft202012Validator:
    """The validator of the headers or the payload of a shape's message."""
    return Draft202012Validator(SHAPES[content_type][part]["schema"], registry=REGISTRY)


def test_every_shape_that_the_worker_reads_is_a_message_of_the_chunk_topic() -> None:
    on_topic = [
        DOCUMENT["components"]["messages"][name]
        for name in DOCUMENT["channels"]["chunks"]["messages"]
    ]

    assert SHAPES.keys() == READERS.keys() - {"application/json"}
    assert all(message in on_topic for message in SHAPES.values())


@pytest.mark.parametrize("name", ["audiohook", "telnyx", "twilio"])
def test_the_messages_of_a_shapes_example_are_by_the_document(name: str) -> None:
    said = json.loads((EXAMPLES / f"{name}.json").read_text("utf-8"))["messages"]
    in_shape = [message for message in said if "value" in message]

    assert len(in_shape) > 3
    for found in in_shape:
        content_type = found["headers"]["content-type"]
        assert [
            e.message for e in of_shape(content_type, "payload").iter_errors(found["value"])
        ] == []
        assert [
            e.message for e in of_shape(content_type, "headers").iter_errors(found["headers"])
        ] == []


def test_headers_of_another_shape_or_with_a_wrong_field_are_not_by_the_document() -> None:
    headers = of_shape(TWILIO, "headers")

    assert headers.is_valid({"content-type": TWILIO, "sample_rate": "16000"})
    assert not headers.is_valid({"content-type": TELNYX})
    assert not headers.is_valid({})
    assert not headers.is_valid({"content-type": TWILIO, "sample_rate": "many"})


def _media(**fields: object) -> dict[str, object]:
    media = {"track": "inbound", "chunk": "1", "timestamp": "20", "payload": "AAAA", **fields}
    return {"event": "media", "media": {k: v for k, v in media.items() if v != "gone"}}


MEDIA_STREAM = [
    _media(),
    _media(track="outbound", chunk=7, timestamp=12.5, streamSid="MZ1"),
    _media(chunk=None, timestamp="gone", payload=""),
    _media(track="both"),
    _media(track="gone"),
    _media(payload="gone"),
    _media(payload="not base64"),
    _media(payload="AAA"),
    _media(payload=3),
    _media(chunk="first"),
    _media(chunk=-1),
    _media(chunk=True),
    _media(timestamp="1e3"),
    _media(timestamp=[20]),
    {"event": "media"},
    {"event": "media", "media": []},
    {"event": "connected", "media": 3},
    {"event": "start", "start": {"tracks": ["outbound"]}},
    {"event": "start", "start": {"mediaFormat": None, "media_format": None}},
    {"event": "start", "start": None},
    {"event": "start"},
    {"event": "stop", "stop": {}},
    {"event": "dtmf"},
    {"event": "mark"},
    {"event": "error"},
    {"event": "clear"},
    {"event": 3},
    {},
]


@pytest.mark.parametrize("content_type", [TWILIO, TELNYX])
@pytest.mark.parametrize("value", MEDIA_STREAM, ids=json.dumps)
def test_the_document_accepts_of_media_streams_what_the_codec_accepts(
    content_type: str, value: dict[str, Any]
) -> None:
    assert of_shape(content_type, "payload").is_valid(value) is _is_taken(content_type, value)


AUDIOHOOKS = [
    {"type": "open", "position": "PT0S"},
    {"type": "open", "position": "PT1H2M3.5S"},
    {"type": "open", "position": None},
    {"type": "open", "position": "PT"},
    {"type": "open", "position": "1.5"},
    {"type": "open", "position": 3},
    {"type": "close", "position": 3},
    {"type": "resumed", "parameters": {"discarded": "PT1.25S"}},
    {"type": "resumed", "parameters": {"discarded": "PT1.S"}},
    {"type": "discarded", "parameters": {"discarded": "two seconds"}},
    {"type": "discarded", "parameters": {"discarded": None}},
    {"type": "discarded", "parameters": []},
    {"type": "discarded"},
    {"type": "paused", "parameters": {"discarded": 3}},
    *[{"type": name} for name in ("ping", "dtmf", "update", "error", "playback_completed")],
    {"type": "listen"},
    {"type": None},
    {},
]


@pytest.mark.parametrize("value", AUDIOHOOKS, ids=json.dumps)
def test_the_document_accepts_of_audiohook_what_the_codec_accepts(value: dict[str, Any]) -> None:
    assert of_shape(AUDIOHOOK, "payload").is_valid(value) is _is_taken(AUDIOHOOK, value)


def _is_taken(content_type: str, value: object) -> bool:
    raw = said_by(content_type, value, encoding="mulaw", sample_rate="8000")
    try:
        parse_chunk(raw, ChunkDefaults())
    except CodecError:
        return False
    return True
