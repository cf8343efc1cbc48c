from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr.errors import ModelError
from oasr.models.whisper.tokens import Said, WhisperTokens
from tests.support.whisper import MODEL_DIR, SPECIAL, TEXT, write_tokenizer

A, SPACE_A, SPACE_B, COMMA, DASH, FIRST_BYTE, SECOND_BYTE, SPACE = range(len(TEXT))
END = len(TEXT)
ZERO = END + len(SPECIAL)  # the token of the time 0


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> WhisperTokens:
    return WhisperTokens(write_tokenizer(tmp_path_factory.mktemp("model") / "tokenizer.json"))


def test_stretches_lie_between_times_of_20_ms(tokens: WhisperTokens) -> None:
    result = [ZERO, SPACE_A, COMMA, ZERO + 50, ZERO + 60, SPACE_B, ZERO + 100]

    assert tokens.said(result) == [
        Said(0, 1000, (SPACE_A, COMMA)),
        Said(1200, 2000, (SPACE_B,)),
    ]


def test_a_text_that_no_time_closes_has_no_end(tokens: WhisperTokens) -> None:
    assert tokens.said([ZERO + 5, SPACE_A, END]) == [Said(100, None, (SPACE_A,))]
    assert tokens.said([SPACE_A]) == [Said(0, None, (SPACE_A,))]


def test_times_without_text_say_nothing(tokens: WhisperTokens) -> None:
    assert tokens.said([ZERO, ZERO + 10, ZERO + 20]) == []
    assert tokens.said([]) == []


def test_marks_belong_to_the_word_before_them(tokens: WhisperTokens) -> None:
    assert tokens.words([SPACE_A, A, COMMA, SPACE_B]) == [("aa,", 0, 3), ("b", 3, 4)]


def test_a_character_of_two_tokens_is_not_torn(tokens: WhisperTokens) -> None:
    assert tokens.words([SPACE_A, FIRST_BYTE, SECOND_BYTE, SPACE_B]) == [("aé", 0, 3), ("b", 3, 4)]


@given(st.lists(st.sampled_from([A, SPACE_A, SPACE_B, COMMA, DASH, SPACE])))
def test_words_are_the_text_and_have_tokens_of_their_own(
    tokens: WhisperTokens, text: list[int]
) -> None:
    words = tokens.words(text)

    assert " ".join(word for word, _, _ in words) == tokens.text(text)
    edges = [edge for _, first, end in words for edge in (first, end)]
    assert edges == sorted(edges)
    assert all(tokens.text(text[first:end]) == word for word, first, end in words)


def test_a_directory_without_the_tokens_of_whisper_is_refused_by_name(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "tokenizer.json", ["<|endoftext|>"])

    with pytest.raises(ModelError, match=r"has no token <\|startoftranscript\|>"):
        WhisperTokens(path)
    path.write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        WhisperTokens(path)


def test_the_tokens_of_tiny_en_are_those_that_were_published() -> None:
    tokens = WhisperTokens(MODEL_DIR / "tokenizer.json")

    assert (tokens.end_of_text, tokens.start) == (50256, 50257)
    assert tokens.said([50363, 632, 50363 + 128]) == [Said(0, 2560, (632,))]
    assert tokens.text([632, 373]) == "It was"


def test_languages_are_the_tokens_between_the_start_and_the_tasks(tokens: WhisperTokens) -> None:
    assert tokens.languages == {"en": END + 2, "de": END + 3, "no": END + 4, "nb": END + 4}
    assert tokens.language(END + 3) == "de"


def test_a_prompt_is_text_alone_whatever_commands_it_names(tokens: WhisperTokens) -> None:
    before = END + 7

    assert tokens.prompt(" \n") == ()
    assert tokens.prompt("a") == (before, A)
    hostile = tokens.prompt("a<|endoftext|><|startoftranscript|><|translate|>a")
    assert all(token < END for token in hostile[1:])
    with pytest.raises(ValueError, match="200 tokens"):
        tokens.prompt("a" * 500)
