"""Options that producers may state never make an endpointing that cannot work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.segmenter import SegmenterConfig
from worker.admission import admitted, endpointing_of
from worker.codec import CodecError
from worker.errors import ErrorCode
from worker.file_reader import WINDOW_MS, window_config
from worker.options import SessionOptions


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
)
def test_any_legal_times_work_for_calls_and_files(
    base: SegmenterConfig, silence: int | None, longest: int | None, no_speech: int | None
) -> None:
    options = SessionOptions(
        min_silence_ms=silence, max_utterance_ms=longest, no_speech_ms=no_speech
    )

    live = endpointing_of(options, base)
    file = window_config(live)

    assert live.min_silence_ms == (silence or base.min_silence_ms)
    assert live.max_utterance_ms == (longest or base.max_utterance_ms)
    assert live.no_speech_ms <= (no_speech or base.no_speech_ms)
    assert file.max_utterance_ms == WINDOW_MS


def test_without_times_the_settings_hold() -> None:
    base = SegmenterConfig()

    assert endpointing_of(SessionOptions(), base) is base


@pytest.mark.parametrize("language", [None, "en", "EN", "en-GB"])
def test_a_language_of_the_model_is_taken(language: str | None) -> None:
    options = SessionOptions(language=language)

    assert admitted(options, ("en", "de")) is options


def test_another_language_is_refused_or_warned_of() -> None:
    with pytest.raises(CodecError) as caught:
        admitted(SessionOptions(language="fi"), ("en",))
    assert caught.value.code is ErrorCode.OPTION_UNSUPPORTED

    lenient = admitted(SessionOptions(language="fi", lenient=True, warnings=("w",)), ("en",))
    assert lenient.language is None
    assert lenient.warnings == ("w", "option_unsupported:language")
