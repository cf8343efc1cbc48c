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
