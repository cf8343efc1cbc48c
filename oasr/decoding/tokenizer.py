"""Token ids to text, from the unit list of a WeNet directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from oasr.errors import ModelError

WORD_START = "▁"
SPECIAL_NAMES = frozenset({"<blank>", "<unk>", "<sos/eos>", "<sos>", "<eos>"})


class Tokenizer:
    """Knows the written piece of every token id."""

    def __init__(self, pieces: Sequence[str], special: Iterable[str] = ()) -> None:
        """`pieces[i]` is the piece of id i; names in `special` are stripped like `<blank>`."""
        stripped = SPECIAL_NAMES | frozenset(special)
        self._pieces = tuple("" if piece in stripped else piece for piece in pieces)

    @classmethod
    def from_units(cls, path: Path, special: Iterable[str] = ()) -> Tokenizer:
        """Read lines of `piece id`; ModelError unless the ids are 0 … n − 1, each once."""
        pieces: dict[int, str] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            try:
                piece, written_id = line.rsplit(maxsplit=1)
                token_id = int(written_id)
            except ValueError:
                raise ModelError(f"{path.name}:{number}: expected 'piece id'") from None
            if token_id in pieces:
                raise ModelError(f"{path.name}:{number}: id {token_id} occurs twice")
            pieces[token_id] = piece
        missing = next((i for i in range(len(pieces)) if i not in pieces), None)
        if missing is not None:
            raise ModelError(f"{path.name}: id {missing} is missing")
        return cls([pieces[i] for i in range(len(pieces))], special)

    def __len__(self) -> int:
        return len(self._pieces)

    def piece(self, token_id: int) -> str:
        """The piece as it is written in the unit list, or "" for a special token."""
        return self._pieces[token_id]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of a token sequence: `▁` begins a word, special tokens leave no trace."""
        text = "".join(self._pieces[token_id] for token_id in token_ids)
        return " ".join(text.replace(WORD_START, " ").split())
