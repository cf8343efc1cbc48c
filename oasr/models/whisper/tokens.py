"""Whisper's vocabulary: byte-level text tokens, and above them commands and times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oasr.errors import ModelError

TIME_STEP_MS: Final = 20
MOST_PROMPT_TOKENS: Final = 200  # of the decoder's 448 positions; 224 are the text's
# What BCP 47 calls otherwise than Whisper.
ALIASES: Final = MappingProxyType(
    {"nb": "no", "iw": "he", "in": "id", "fil": "tl", "jv": "jw", "ji": "yi", "cmn": "zh"}
)
_LANGUAGE: Final = re.compile(r"<\|([a-z]{2,3})\|>")
_WORD: Final = re.compile(r"\S+")
_HALF_A_CHARACTER: Final = "\ufffd"


class Said(NamedTuple):
    """A stretch between two times of a window; without a closing one `end_ms` is None."""

    start_ms: int
    end_ms: int | None
    tokens: tuple[int, ...]


class WhisperTokens:
    """Reads `tokenizer.json` of a model directory."""

    def __init__(self, path: Path) -> None:
        """ModelError where the file is no tokenizer of a Whisper model."""
        from tokenizers import Tokenizer

        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the library knows no class of its own
            raise ModelError(f"{path.name} cannot be read: {error}") from error
        self.start = self._id("<|startoftranscript|>")
        self.transcribe = self._id("<|transcribe|>")
        self.translate = self._id("<|translate|>")
        self._before = self._id("<|startofprev|>")
        self.end_of_text = self._id("<|endoftext|>")
        self._first_time = self._id("<|notimestamps|>") + 1
        # The token of each language that a multilingual model knows; aliases count.
        self.languages = self._languages()

    def language(self, token: int) -> str:
        """The code of a language's token."""
        return str(self._tokenizer.id_to_token(token)).strip("<|>")

    def prompt(self, before: str) -> tuple[int, ...]:
        """What tells the decoder that a text came before; none for an empty one.

        ValueError where it is longer than MOST_PROMPT_TOKENS. Names of commands are left out.
        """
        if not before.strip():
            return ()
        written = self._tokenizer.encode(" " + before.strip(), add_special_tokens=False).ids
        tokens = [token for token in written if token < self.end_of_text]
        if len(tokens) > MOST_PROMPT_TOKENS:
            raise ValueError(f"more than {MOST_PROMPT_TOKENS} tokens")
        return (self._before, *tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """What text tokens write; words are parted by single blanks."""
        return " ".join(self._tokenizer.decode(list(tokens), skip_special_tokens=True).split())

    def words(self, tokens: Sequence[int]) -> list[tuple[str, int, int]]:
        """Each word, its first token, and the token behind its last one.

        Joined by blanks they are `text(tokens)`.
        """
        pieces = list(self._pieces(tokens))
        owners = [index for index, (piece, _) in enumerate(pieces) for _ in piece]
        ends = [*accumulate((count for _, count in pieces), initial=0)]
        text = "".join(piece for piece, _ in pieces)
        return [
            (match.group(), ends[owners[match.start()]], ends[owners[match.end() - 1] + 1])
            for match in _WORD.finditer(text)
        ]

    def said(self, tokens: Sequence[int]) -> list[Said]:
        """The stretches of a window's result, in order; those without text are left out."""
        found: list[Said] = []
        start_ms, heard = 0, []
        for token in tokens:
            if token < self.end_of_text:
                heard.append(token)
            elif token >= self._first_time:
                time_ms = (token - self._first_time) * TIME_STEP_MS
                if heard:
                    found.append(Said(start_ms, time_ms, tuple(heard)))
                    heard = []
                start_ms = time_ms
        if heard:
            found.append(Said(start_ms, None, tuple(heard)))
        return found

    def _pieces(self, tokens: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Texts of as few tokens as have whole characters."""
        pending: list[int] = []
        for token in tokens:
            pending.append(token)
            text = self._tokenizer.decode(pending, skip_special_tokens=True)
            if not text.endswith(_HALF_A_CHARACTER):
                yield text, len(pending)
                pending = []
        if pending:
            yield self._tokenizer.decode(pending, skip_special_tokens=True), len(pending)

    def _languages(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        between = range(self.start + 1, min(self.translate, self.transcribe))
        found = {
            match.group(1): token
            for name, token in sorted(vocabulary.items())
            if token in between and (match := _LANGUAGE.fullmatch(name))
        }
        return {**{a: found[code] for a, code in ALIASES.items() if code in found}, **found}

    def _id(self, name: str) -> int:
        found: int | None = self._tokenizer.token_to_id(name)
        if found is None:
            raise ModelError(f"tokenizer.json has no token {name}")
        return found
