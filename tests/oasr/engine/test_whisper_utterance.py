"""How far an utterance is read, with windows whose readings the test makes up."""

from __future__ import annotations

import numpy as np
import pytest

from oasr.audio.voiced import Voice
from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request
from oasr.engine.whisper_part import WhisperPart, parts
from oasr.engine.whisper_utterance import WhisperUtterance
from oasr.engine.whisper_windows import Heard
from oasr.models.whisper.model import MAX_TOKENS, Reading
from oasr.models.whisper.tokens import Said, WhisperTokens
from tests.support.whisper import write_tokenizer

RATE = 16_000
WINDOW = 512
WORD = 1  # "a", after a blank


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> WhisperTokens:
    return WhisperTokens(write_tokenizer(tmp_path_factory.mktemp("model") / "tokenizer.json"))


def heard(
    *stretches: tuple[int, int | None], log_prob: float = -0.3, length: int | None = None
) -> Heard:
    said = [Said(start_ms, end_ms, (WORD,)) for start_ms, end_ms in stretches]
    return Heard(Reading((WORD,) * (length or len(said)), log_prob, 0.1), 0.0, said, None)


def utterance(
    tokens: WhisperTokens, seconds: float, *voices: tuple[float, float]
) -> WhisperUtterance:
    """An utterance of `seconds` with voice between pairs of them."""
    is_voiced = np.zeros(-(-round(seconds * RATE) // WINDOW), bool)
    for start, end in voices:
        is_voiced[round(start * RATE) // WINDOW : -(-round(end * RATE) // WINDOW)] = True
    first = round(voices[0][0] * RATE) // WINDOW * WINDOW
    voice = Voice(is_voiced, first, round(voices[-1][1] * RATE))
    request = Request(
        audio=np.zeros(round(seconds * RATE), np.float32), decoding=DecodingOptions("prefix_beam")
    )
    assert request.audio is not None
    return WhisperUtterance(request, request.audio, voice, tokens)


def one_part(seconds: int) -> WhisperPart:
    """All of which is voice, but for 0.3 s."""
    audio = np.zeros(seconds * RATE, np.float32)
    return WhisperPart(audio, [(0, len(audio))], len(audio) - RATE * 3 // 10)


def at_s(part: WhisperPart, seconds: float) -> float:
    """Where the next window begins, of a part of `seconds`."""
    return seconds - len(part.rest) / RATE


def test_voice_is_read_with_a_margin_and_long_pauses_are_left_out(tokens: WhisperTokens) -> None:
    one = utterance(tokens, 60, (5, 9), (20, 24), (24.4, 26))

    (part,) = one.parts
    assert len(part.rest) / RATE == pytest.approx(4.6 + 6.6, abs=0.15)
    part.hear(heard((0, 4_600), (4_600, 11_000)))
    output = one.output()
    assert [(s.text, s.start_sample / RATE, s.end_sample / RATE) for s in output.stretches] == [
        ("a", pytest.approx(5, abs=0.1), pytest.approx(9, abs=0.1)),
        ("a", pytest.approx(20, abs=0.1), pytest.approx(26, abs=0.2)),
    ]
    assert output.text == "a a"


def test_little_voice_is_read_among_what_surrounds_it(tokens: WhisperTokens) -> None:
    one = utterance(tokens, 60, (30, 30.5))

    assert len(one.parts[0].rest) / RATE == pytest.approx(20.5, abs=0.1)


def test_what_fills_more_than_a_window_is_cut_between_voices(tokens: WhisperTokens) -> None:
    one = utterance(tokens, 120, *((at, at + 11) for at in range(0, 108, 12)))

    assert [len(part.rest) / RATE for part in one.parts] == [
        pytest.approx(23, abs=0.6),
        pytest.approx(23, abs=0.6),
        pytest.approx(23, abs=0.6),
        pytest.approx(23, abs=0.6),
        pytest.approx(11, abs=0.8),
    ]


def test_a_place_in_a_part_is_one_in_the_utterance() -> None:
    audio = np.arange(100, dtype=np.float32)
    (part,) = parts(audio, [(10, 20), (40, 45), (90, 100)], 0, 100)

    assert part.rest.tolist() == [*range(10, 20), *range(40, 45), *range(90, 100)]
    assert part.place(0, 10) == (10, 20)  # the pause behind it is not its own
    assert part.place(10, 15) == (40, 45)
    assert part.place(9, 11) == (19, 41)
    assert part.place(15, 99) == (90, 100)
    assert part.place(12, 12) == (42, 42)


def test_a_text_that_reaches_the_end_of_the_voice_ends_the_reading(tokens: WhisperTokens) -> None:
    one = utterance(tokens, 20, (0, 18))
    one.parts[0].hear(heard((0, 5_000), (5_000, 17_500)))

    assert one.parts[0].is_read
    output = one.output()
    assert output.text == "a a"
    assert output.evidence is not None
    assert output.evidence.coverage == pytest.approx(17.5 / 18, abs=0.005)
    assert (output.evidence.voiced_ms, output.evidence.temperature) == (18_016, 0.0)
    assert [s.evidence == output.evidence for s in output.stretches] == [True, True]


def test_a_window_that_ended_early_is_read_on_from_where_its_text_ends(
    tokens: WhisperTokens,
) -> None:
    one = utterance(tokens, 20, (0, 18))
    part = one.parts[0]
    part.hear(heard((0, 6_000)))

    assert not part.is_read
    assert len(part.rest) / RATE == pytest.approx(12.3, abs=0.1)
    part.hear(heard((0, 11_800), log_prob=-0.9))
    assert part.is_read
    output = one.output()
    assert output.text == "a a"
    assert output.evidence is not None
    assert output.evidence.coverage == pytest.approx(17.8 / 18, abs=0.005)
    assert output.evidence.log_prob == -0.9


def test_a_text_without_a_closing_time_covers_the_last_window() -> None:
    part = one_part(28)
    part.hear(heard((0, 8_000), (8_000, None)))

    assert part.is_read
    assert len(part.heard[0][1].said) == 2


def test_what_the_end_of_a_window_cuts_off_is_read_again_from_its_begin() -> None:
    part = one_part(50)
    part.hear(heard((0, 8_000), (8_000, 27_000), (27_000, None)))

    assert at_s(part, 50) == 27
    assert [said.end_ms for said in part.heard[0][1].said] == [8_000, 27_000]


def test_what_was_not_written_to_its_end_is_read_again_from_its_begin() -> None:
    part = one_part(28)
    part.hear(heard((0, 8_000), (8_000, None), length=MAX_TOKENS))

    assert not part.is_read
    assert at_s(part, 28) == 8


def test_a_single_sentence_longer_than_a_window_is_read_window_by_window() -> None:
    part = one_part(50)
    part.hear(heard((0, None)))

    assert at_s(part, 50) == 30


def test_a_window_longer_than_the_audio_goes_on_at_its_last_time() -> None:
    part = one_part(50)
    part.hear(heard((0, 26_000)))

    assert at_s(part, 50) == 26


@pytest.mark.parametrize("says", [heard(), heard((0, 900))])
def test_a_window_that_says_next_to_nothing_is_not_read_for_ever(says: Heard) -> None:
    part = one_part(50)
    part.hear(says)
    assert at_s(part, 50) == 30
    part.hear(says)

    assert part.is_read


def test_a_failed_window_ends_the_reading(tokens: WhisperTokens) -> None:
    one = utterance(tokens, 50, (0, 49))
    one.parts[0].hear(None)

    assert one.parts[0].is_read
    assert one.failed


def test_stretches_follow_each_other(tokens: WhisperTokens) -> None:
    one = utterance(tokens, 20, (0, 18))
    one.parts[0].hear(heard((0, 9_000), (8_000, 17_900)))

    first, second = one.output().stretches
    assert first.end_sample == second.start_sample
