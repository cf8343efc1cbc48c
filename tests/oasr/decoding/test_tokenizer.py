"""Unit lists and the texts they spell."""

from __future__ import annotations

import pytest

from oasr.decoding.tokenizer import Tokenizer
from oasr.errors import ModelError


def test_word_starts_become_single_spaces_and_the_ends_are_bare():
    tokenizer = Tokenizer(["<blank>", "<unk>", "▁i", "▁", "s", "▁to", "day", "<sos/eos>"])

    assert tokenizer.decode([2, 5, 6]) == "i today"
    assert tokenizer.decode([3, 3, 4, 3]) == "s"
    assert tokenizer.decode([]) == ""


def test_special_tokens_are_known_by_name_wherever_they_stand():
    tokenizer = Tokenizer(["<blank>", "<unk>", "▁yes", "<sos/eos>", "<zh>"], special=["<zh>"])

    assert tokenizer.decode([0, 1, 2, 3, 4]) == "yes"
    assert [tokenizer.piece(i) for i in range(5)] == ["", "", "▁yes", "", ""]
    assert len(tokenizer) == 5


def test_characters_without_word_starts_are_joined():
    assert Tokenizer(["<blank>", "你", "好"]).decode([1, 2]) == "你好"


def test_units_are_read_in_any_order_with_pieces_that_look_like_anything(tmp_path):
    path = tmp_path / "units.txt"
    path.write_text("▁a 2\n<blank> 0\n\n1 1\n' 3\n", encoding="utf-8")

    tokenizer = Tokenizer.from_units(path)

    assert tokenizer.decode([2, 3, 1]) == "a'1"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("<blank> 0\n▁a\n", r"units\.txt:2: expected 'piece id'"),
        ("<blank> 0\n▁a one\n", r"units\.txt:2: expected 'piece id'"),
        ("<blank> 0\n▁a 1\n▁b 1\n", r"units\.txt:3: id 1 occurs twice"),
        ("<blank> 0\n▁a 2\n", r"units\.txt: id 1 is missing"),
    ],
)
def test_a_broken_unit_list_is_refused_with_its_place(tmp_path, lines, message):
    path = tmp_path / "units.txt"
    path.write_text(lines, encoding="utf-8")

    with pytest.raises(ModelError, match=message):
        Tokenizer.from_units(path)
