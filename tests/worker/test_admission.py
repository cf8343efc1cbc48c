"""Options that producers may state never make an endpointing that cannot work."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.gates import Vad
from oasr.audio.segmenter import SegmenterConfig
from oasr.decoding.options import DecodingOptions, Hotword
from oasr.engine.family import Capabilities, check_capabilities
from oasr.errors import OptionError
from worker.admission import Admission
from worker.codec import CodecError
from worker.endpointing_options import AskedEndpointing
from worker.errors import ErrorCode
from worker.file_reader import WINDOW_MS, window_config
from worker.options import SessionOptions, parse_options


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.sampled_from([low, high]) | st.integers(low, high)


@st.composite
def defaults(draw: st.DrawFn) -> SegmenterConfig:
    pre_roll = draw(st.integers(0, 2000))
    no_speech = draw(st.integers(pre_roll + 100, 30_000))
    search = draw(st.integers(200, 30_000))
    longest = draw(st.integers(max(no_speech, search) + 100, 60_000))
    return SegmenterConfig(
        pre_roll_ms=pre_roll,
        min_silence_ms=draw(st.integers(50, 10_000)),
        max_utterance_ms=longest,
        no_speech_ms=no_speech,
        quiet_search_ms=search,
    )


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(st.just(SegmenterConfig()), defaults()),
    optional(100, 10_000),
    optional(1_000, 60_000),
    optional(500, 30_000),
    optional(0, 2_000),
    optional(200, 30_000),
)
def test_any_legal_times_work_for_calls_and_files(
    base: SegmenterConfig,
    silence: int | None,
    longest: int | None,
    no_speech: int | None,
    pre_roll: int | None,
    search: int | None,
) -> None:
    asked = AskedEndpointing(
        min_silence_ms=silence,
        max_utterance_ms=longest,
        no_speech_ms=no_speech,
        pre_roll_ms=pre_roll,
        quiet_search_ms=search,
    )

    live = asked.over(base)
    file = window_config(live)

    assert live.min_silence_ms == (silence or base.min_silence_ms)
    assert live.max_utterance_ms == (longest or base.max_utterance_ms)
    assert live.no_speech_ms <= (no_speech or base.no_speech_ms)
    assert live.pre_roll_ms <= (base.pre_roll_ms if pre_roll is None else pre_roll)
    assert live.quiet_search_ms <= (search or base.quiet_search_ms)
    assert file.max_utterance_ms == WINDOW_MS


def test_what_fits_together_is_taken_as_asked_for() -> None:
    asked = AskedEndpointing(
        pre_roll_ms=0,
        min_silence_ms=400,
        max_utterance_ms=9_000,
        no_speech_ms=600,
        quiet_search_ms=800,
        gate=False,
        vad=Vad.SILERO,
    )

    assert asked.over(SegmenterConfig()) == SegmenterConfig(
        0, 400, 9_000, 600, 800, False, "silero"
    )


def test_times_that_do_not_fit_give_way() -> None:
    short = AskedEndpointing(max_utterance_ms=1_000, no_speech_ms=2_000, pre_roll_ms=900)

    assert short.over(SegmenterConfig()) == SegmenterConfig(
        pre_roll_ms=800, max_utterance_ms=1_000, no_speech_ms=900, quiet_search_ms=900
    )


def test_a_vad_that_is_not_installed_is_refused_or_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert admit(vad="silero").endpointing.vad is Vad.SILERO
    monkeypatch.setattr("oasr.audio.silero.is_installed", lambda: False)

    with pytest.raises(CodecError) as caught:
        admit(vad="silero")
    assert caught.value.code is ErrorCode.OPTION_UNSUPPORTED
    assert "silero" in caught.value.message
    options = admit(vad="silero", gate=True, lenient=True)
    assert options.endpointing == AskedEndpointing(gate=True)
    assert options.warnings == ("option_unsupported:vad",)


def test_without_times_the_settings_hold() -> None:
    base = SegmenterConfig()

    assert SessionOptions().endpointing.over(base) is base


@pytest.mark.parametrize("language", [None, "en", "EN", "en-GB"])
def test_a_language_of_the_model_is_taken(language: str | None) -> None:
    options = SessionOptions(language=language)

    admitted = Admission(("en", "de")).admit(options)

    assert admitted == replace(options, decoding=DecodingOptions(language=language))


def test_another_language_is_refused_or_warned_of() -> None:
    admission = Admission(("en",))
    with pytest.raises(CodecError) as caught:
        admission.admit(SessionOptions(language="fi"))
    assert caught.value.code is ErrorCode.OPTION_UNSUPPORTED

    lenient = admission.admit(SessionOptions(language="fi", lenient=True, warnings=("w",)))
    assert lenient.language is None
    assert lenient.warnings == ("w", "option_unsupported:language")


def of_model(*languages: str, detects: bool = False) -> Admission:
    able = Capabilities(True, ("greedy",), languages=languages, detects_language=detects)
    return Admission(languages, check=partial(check_capabilities, able))


def test_the_language_is_found_out_where_there_is_but_one_or_the_model_can_tell() -> None:
    asked = SessionOptions(language="auto")

    for admission in (of_model("en"), of_model("en", "de", detects=True)):
        assert admission.admit(asked).decoding.language == "auto"
    with pytest.raises(CodecError) as caught:
        of_model("en", "de").admit(asked)
    assert caught.value.code is ErrorCode.OPTION_UNSUPPORTED
    lenient = of_model("en", "de").admit(SessionOptions(language="auto", lenient=True))
    assert lenient.language is lenient.decoding.language is None
    assert lenient.warnings == ("option_unsupported:language",)


def limited(options: DecodingOptions) -> None:
    """A model without beams of six, whose tokens have no digits."""
    options.check()
    if options.search == "prefix_beam" and options.beam == 6:
        raise OptionError("search", "no beams of six here")
    if any(hotword.phrase.isdigit() for hotword in options.hotwords):
        raise OptionError("hotwords", "no digits here")


def admit(**options: Any) -> SessionOptions:
    admission = Admission(("en",), DecodingOptions(beam=5), limited)
    return admission.admit(parse_options(options))


def test_how_to_decode_is_what_is_asked_for_over_the_defaults() -> None:
    assert admit().decoding == DecodingOptions(beam=5)
    assert admit(words=True).decoding == DecodingOptions(beam=5, word_times=True)


def test_options_that_contradict_each_other_are_refused_even_of_the_lenient() -> None:
    with pytest.raises(CodecError) as caught:
        admit(search="greedy", max_alternatives=2, lenient=True)

    assert caught.value.code is ErrorCode.INVALID_OPTIONS


def test_a_search_that_the_model_has_not_is_refused_or_warned_of() -> None:
    with pytest.raises(CodecError) as caught:
        admit(search="prefix_beam", beam=6)
    assert caught.value.code is ErrorCode.OPTION_UNSUPPORTED

    options = admit(search="prefix_beam", beam=6, lenient=True)
    assert options.decoding == DecodingOptions(beam=6)
    assert options.warnings == ("option_unsupported:search",)


def test_a_phrase_that_the_model_cannot_write_is_refused_or_left_out() -> None:
    with pytest.raises(CodecError) as caught:
        admit(hotwords=["acme", "42"])
    assert caught.value.code is ErrorCode.OPTION_UNSUPPORTED
    assert "hotwords[1]" in caught.value.message
    assert "42" not in caught.value.message

    options = admit(hotwords=["acme", "42"], lenient=True)
    assert options.decoding.hotwords == (Hotword("acme"),)
    assert options.warnings == ("option_unsupported:hotwords",)


def test_the_lenient_lose_a_search_that_they_need_for_nothing_else() -> None:
    options = admit(hotwords=["42"], lenient=True)

    assert options.decoding == DecodingOptions(beam=5)


def test_defaults_that_the_model_cannot_honour_stop_the_start() -> None:
    with pytest.raises(OptionError):
        Admission(("en",), DecodingOptions("prefix_beam", 6), limited)


def test_options_that_every_message_repeats_are_looked_at_once() -> None:
    asked: list[DecodingOptions] = []
    admission = Admission(("en",), None, asked.append)
    text = '{"hotwords": ["acme"], "words": true}'

    first, second = (admission.admit(parse_options(text)) for _ in range(2))

    assert first is second
    assert asked == [
        DecodingOptions(),  # the defaults, at the start
        DecodingOptions("prefix_beam", hotwords=(Hotword("acme"),)),
        DecodingOptions("prefix_beam", word_times=True, hotwords=(Hotword("acme"),)),
    ]
