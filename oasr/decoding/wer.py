"""Word error rate by the least number of word edits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class WordErrors(NamedTuple):
    """Edits that turn a reference into a hypothesis."""

    substitutions: int
    deletions: int
    insertions: int


def word_errors(reference: str, hypothesis: str) -> WordErrors:
    """The fewest edits between two texts whose words are separated by white space."""
    wanted, heard = reference.split(), hypothesis.split()
    # row[j]: (edits, substitutions, deletions, insertions) from the words so far to heard[:j]
    row = [(j, 0, 0, j) for j in range(len(heard) + 1)]
    for word in wanted:
        above, row = row, [_add(row[0], deletions=1)]
        for j, other in enumerate(heard):
            same_or_substituted = _add(above[j], substitutions=int(word != other))
            deleted = _add(above[j + 1], deletions=1)
            inserted = _add(row[j], insertions=1)
            row.append(min(same_or_substituted, deleted, inserted))
    return WordErrors(*row[-1][1:])


def _add(
    cell: tuple[int, int, int, int],
    substitutions: int = 0,
    deletions: int = 0,
    insertions: int = 0,
) -> tuple[int, int, int, int]:
    edits = substitutions + deletions + insertions
    return (cell[0] + edits, cell[1] + substitutions, cell[2] + deletions, cell[3] + insertions)


@dataclass(slots=True)
class Wer:
    """Sums word errors over many texts."""

    words: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    def add(self, reference: str, hypothesis: str) -> WordErrors:
        """Count one pair of texts and return its errors."""
        found = word_errors(reference, hypothesis)
        self.words += len(reference.split())
        self.substitutions += found.substitutions
        self.deletions += found.deletions
        self.insertions += found.insertions
        return found

    @property
    def errors(self) -> int:
        """All edits so far."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors per reference word; infinite when words were heard where none are."""
        if self.words == 0:
            return float("inf") if self.errors else 0.0
        return self.errors / self.words
