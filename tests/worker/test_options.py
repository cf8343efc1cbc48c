"""Options are taken as given or refused by name; nothing is silently ignored."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.gates import Vad
from oasr.audio.segmenter import SegmenterConfig
from worker.endpointing_options import AskedEndpointing
from worker.errors import CodecError, ErrorCode
from worker.options import SessionOptions, parse_options


def refusal(source) -> CodecError:
    with pytest.raises(CodecError) as caught:
        parse_options(source)
    return caught.value


def test_options_are_taken_as_given():
    text = (
        '{"language": "en-US", "partials": false, "emit_empty": true, "min_silence_ms": 500,'
        ' "max_utterance_ms": 15000, "no_speech_ms": 1000}'
    )

    assert parse_options(text) == SessionOptions(
        language="en-US",
        partials=False,
        endpointing=AskedEndpointing(
            min_silence_ms=500, max_utterance_ms=15_000, no_speech_ms=1_000
        ),
        emit_empty=True,
    )


@pytest.mark.parametrize("name", ["a", "acme.eu-1:sales_2", 64 * "x"])
def test_a_tenant_may_be_named(name):
    assert parse_options({"tenant": name}).tenant == name
    assert parse_options({}).tenant == ""


ENDPOINTING = {
    "pre_roll_ms": 0,
    "min_silence_ms": 300,
    "max_utterance_ms": 60_000,
    "no_speech_ms": 500,
    "quiet_search_ms": 200,
    "gate": False,
    "vad": "silero",
}


def test_every_rule_of_the_segmenter_can_be_asked_for():
    asked = parse_options({"endpointing": ENDPOINTING}).endpointing

    assert asked == AskedEndpointing(**{**ENDPOINTING, "vad": Vad.SILERO})
    assert {field.name for field in fields(SegmenterConfig)} == ENDPOINTING.keys()


def test_what_concerns_endpointing_may_stand_in_a_group_of_its_own():
    assert parse_options(ENDPOINTING) == parse_options({"endpointing": ENDPOINTING})
    assert refusal('{"endpointing": {"x": 1}}').code is ErrorCode.OPTION_UNSUPPORTED
    assert refusal('{"endpointing": 3}').code is ErrorCode.INVALID_OPTIONS


def test_no_options_are_the_defaults():
    assert parse_options("{}") == parse_options({}) == SessionOptions()


def test_an_unknown_option_is_refused_by_name():
    error = refusal('{"hotword": ["x"]}')

    assert error.code is ErrorCode.OPTION_UNSUPPORTED
    assert "hotword" in error.message


def test_an_unknown_option_is_a_warning_for_the_lenient():
    options = parse_options({"lenient": True, "wordings": True, "zo\nom": 1})

    assert options.warnings == ("option_unsupported:wordings", "option_unsupported:zo?om")


# What other recognizers let a caller ask for, and what becomes of it here.
HONOURED = {
    "language": "en",
    "partials": False,
    "words": True,
    "confidences": True,
    "max_alternatives": 3,
    "endpointing": {"min_silence_ms": 300, "max_utterance_ms": 9_000, "no_speech_ms": 900},
    "hotwords": [{"phrase": "june", "boost": 2}, "july"],
    "vad": "energy",
    "tenant": "acme",
    "model": "files",
    "second_pass": True,
}
UNKNOWN = {
    "interim": {"enabled": True, "min_interval_ms": 200},
    "punctuate": True,
    "redact": ["pci"],
    "redact_partials": "mask",
    "profanity": False,
    "priority": 1,
    "deadline_ms": 800,
    "task": "translate",
    "roles": ["agent", "customer"],
}


@pytest.mark.parametrize("name", HONOURED)
def test_an_option_that_the_worker_knows_changes_what_is_done(name):
    asked = parse_options({name: HONOURED[name]})

    assert asked != SessionOptions()
    assert asked.warnings == ()


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_option_of_other_recognizers_is_refused_by_name_or_a_warning(name):
    strict = refusal({name: UNKNOWN[name]})
    lenient = parse_options({name: UNKNOWN[name], "lenient": True})

    assert strict.code is ErrorCode.OPTION_UNSUPPORTED
    assert f"no option {name}" in strict.message
    assert lenient == SessionOptions(lenient=True, warnings=(f"option_unsupported:{name}",))


@pytest.mark.parametrize(
    ("name", "where"), [("interim", "partials"), ("priority", "header"), ("roles", "header")]
)
def test_what_is_said_elsewhere_is_refused_with_the_place(name, where):
    assert where in refusal({name: UNKNOWN[name]}).message


def test_a_known_option_with_a_wrong_value_is_refused_of_the_lenient_too():
    assert refusal({"vad": {"threshold": 0.5}, "lenient": True}).code is ErrorCode.INVALID_OPTIONS


@pytest.mark.parametrize("count", [7, 8, 9, 30])
def test_no_unknown_option_goes_without_a_warning(count):
    options = parse_options({"lenient": True, **{f"x{n:02}": n for n in range(count)}})

    named = [text for text in options.warnings if not text.endswith(" more")]
    more = [int(text.split(":")[1].split()[0]) for text in options.warnings[len(named) :]]
    assert named == [f"option_unsupported:x{n:02}" for n in range(min(count, 8))]
    assert len(named) + sum(more) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        '{"partials": 1}',
        '{"partials": null}',
        '{"lenient": "yes"}',
        '{"language": ""}',
        '{"language": "english please"}',
        '{"language": 5}',
        '{"tenant": ""}',
        '{"tenant": "a b"}',
        '{"tenant": "caf\u00e9"}',
        '{"tenant": 7}',
        '{"tenant": "' + 65 * "x" + '"}',
        '{"min_silence_ms": 99}',
        '{"pre_roll_ms": 2001}',
        '{"pre_roll_ms": -1}',
        '{"quiet_search_ms": 199}',
        '{"gate": 1}',
        '{"vad": "webrtc"}',
        '{"vad": true}',
        '{"min_silence_ms": 500.0}',
        '{"min_silence_ms": true}',
        '{"max_utterance_ms": 60001}',
        '{"no_speech_ms": "1000"}',
        '{"max_utterance_ms": 1e999}',
    ],
)
def test_an_option_of_the_wrong_type_or_range_is_refused(text):
    assert refusal(text).code is ErrorCode.INVALID_OPTIONS


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.binary()))
def test_text_that_is_no_options_is_refused_and_never_another_exception(text):
    try:
        options = parse_options(text)
    except CodecError:
        return

    assert isinstance(options, SessionOptions)
