"""How far an utterance is read, with windows whose readings the test makes up."""

from __future__ import annotations

import numpy as np
import pytest

from oasr.audio.voiced import Voice
from oasr.decoding.options import DecodingOptions
from oasr.engine import whisper_utterance
from oasr.engine.request import Request
from oasr.engine.whisper_utterance import WhisperUtterance
from oasr.engine.whisper_windows import Heard
from oasr.models.whisper.model import Reading
from oasr.models.whisper.tokens import Said, WhisperTokens
from tests.support.whisper import write_tokenizer

RATE = 16_000
WINDOW = 512
WORD = 1  # "a", after a blank


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> WhisperTokens:
    return WhisperTokens(write_tokenizer(tmp_path_factory.mktemp("model") / "tokenizer.json"))


def heard(*stretches: tuple[int, int | None], log_prob: float = -0.3) -> Heard:
    said = [Said(start_ms, end_ms, (WORD,)) for start_ms, end_ms in stretches]
    return Heard(Reading((WORD,) * len(said), log_prob, 0.1), 0.0, said, None)


def utterance(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch, seconds: int, voice: tuple[int, int]
) -> WhisperUtterance:
    """An utterance of `seconds` with voice between two of them."""
    is_voiced = np.zeros(-(-seconds * RATE // WINDOW), bool)
    start, end = voice[0] * RATE, voice[1] * RATE
    is_voiced[start // WINDOW : -(-end // WINDOW)] = True
    monkeypatch.setattr(
        whisper_utterance, "find_voice", lambda _audio: Voice(is_voiced, start, end)
    )
    request = Request(
        audio=np.zeros(seconds * RATE, np.float32), decoding=DecodingOptions("prefix_beam")
    )
    return WhisperUtterance(request, request.audio, tokens)


def at_s(one: WhisperUtterance, seconds: int) -> float:
    """Where the next window begins, of an utterance of `seconds`."""
    return seconds - len(one.rest) / RATE


def test_reading_begins_shortly_before_the_voice(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert at_s(utterance(tokens, monkeypatch, 20, (5, 18)), 20) == pytest.approx(4.8)
    assert at_s(utterance(tokens, monkeypatch, 20, (0, 18)), 20) == 0


def test_a_text_that_reaches_the_end_of_the_voice_ends_the_reading(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = utterance(tokens, monkeypatch, 20, (0, 18))
    one.hear(heard((0, 5_000), (5_000, 17_500)))

    assert one.is_read
    output = one.output()
    assert output.text == "a a"
    assert output.evidence is not None
    assert output.evidence.coverage == round(17.5 / 18, 3)
    assert (output.evidence.voiced_ms, output.evidence.temperature) == (18_016, 0.0)


def test_a_window_that_ended_early_is_read_on_from_where_its_text_ends(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = utterance(tokens, monkeypatch, 20, (0, 18))
    one.hear(heard((0, 6_000)))

    assert not one.is_read
    assert at_s(one, 20) == 6
    one.hear(heard((0, 11_800), log_prob=-0.9))
    assert one.is_read
    output = one.output()
    assert output.text == "a a"
    assert output.evidence is not None
    assert (output.evidence.coverage, output.evidence.log_prob) == (round(17.8 / 18, 3), -0.9)


def test_a_text_without_a_closing_time_covers_its_window(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = utterance(tokens, monkeypatch, 50, (0, 49))
    one.hear(heard((0, 8_000), (8_000, None)))

    assert at_s(one, 50) == 30


def test_a_window_longer_than_the_audio_goes_on_at_its_last_time(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = utterance(tokens, monkeypatch, 50, (0, 49))
    one.hear(heard((0, 26_000)))

    assert at_s(one, 50) == 26


@pytest.mark.parametrize("says", [heard(), heard((0, 900))])
def test_a_window_that_says_next_to_nothing_is_not_read_for_ever(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch, says: Heard
) -> None:
    one = utterance(tokens, monkeypatch, 50, (0, 49))
    one.hear(says)
    assert at_s(one, 50) == 30
    one.hear(says)

    assert one.is_read


def test_a_failed_window_ends_the_reading(
    tokens: WhisperTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = utterance(tokens, monkeypatch, 50, (0, 49))
    one.hear(None)

    assert one.is_read
    assert one.failed
