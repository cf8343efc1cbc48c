"""Recordings whose texts are known, and a way to compare texts that were written differently."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SMALL: Final = """zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen"""
_ONES: Final = _SMALL.split()
_ROUND: Final = "zero ten twenty thirty forty fifty sixty seventy eighty ninety"
_TENS: Final = _ROUND.split()
_MONEY: Final = {"$": "dollars", "£": "pounds"}


@dataclass(frozen=True, slots=True)
class Spoken:
    """A recording and what is said in it, a text a channel."""

    path: Path
    texts: tuple[str, ...]


def recordings(folder: Path) -> list[Spoken]:
    """All below a folder that have a text in `reference.json` or in a file of their own name."""
    found: list[Spoken] = []
    for reference in sorted(folder.rglob("*.json")):
        content = json.loads(reference.read_text(encoding="utf-8"))
        if reference.name == "reference.json":
            found += [Spoken(reference.parent / e["file"], (e["text"],)) for e in content]
        elif (audio := reference.with_suffix(".wav")).exists():
            texts = [
                " ".join(s["text"] for s in content["segments"] if s["channel"] == channel)
                for channel in range(len(content["roles"]))
            ]
            found.append(Spoken(audio, tuple(texts)))
    return [spoken for spoken in found if spoken.path.exists()]


def plain(text: str) -> str:
    """Lower case, numbers in words, no marks."""
    text = re.sub(r"([$£])([\d,.]*\d)", lambda m: f"{m[2]} {_MONEY[m[1]]}", text.lower())
    text = re.sub(r"\d{1,3}(,\d{3})+", lambda m: _amount(m.group().replace(",", "")), text)
    text = re.sub(r"\d+", lambda m: f" {_number(m.group())} ", text)
    return " ".join(re.sub(r"[^a-z' ]", " ", text).replace(" and ", " ").split())


def _number(digits: str) -> str:
    """A numeral as it is usually said: digit by digit, like `7-9-5`, where it is a code.

    That is one that begins with 0, has three digits but no full hundreds, or five and more without
    commas between its thousands.
    """
    is_code = len(digits) >= 5 or (len(digits) == 3 and int(digits) % 100)
    if digits.startswith("0") or is_code:
        return " ".join(_ONES[int(digit)] for digit in digits)
    return _cardinal(int(digits))


def _amount(digits: str) -> str:
    """A numeral with commas."""
    millions, rest = divmod(int(digits), 1_000_000)
    return f"{_cardinal(millions)} million {_cardinal(rest)}" if millions else _cardinal(rest)


def _cardinal(value: int) -> str:
    if value < 20:
        return _ONES[value]
    if value < 100:
        return f"{_TENS[value // 10]} {_ONES[value % 10] if value % 10 else ''}"
    unit, name = (100, "hundred") if value < 1000 else (1000, "thousand")
    rest = _cardinal(value % unit) if value % unit else ""
    return f"{_cardinal(value // unit)} {name} {rest}"
