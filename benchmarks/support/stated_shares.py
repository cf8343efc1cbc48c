"""What is stated of many things beside how much of it came true."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def table(
    pairs: Sequence[tuple[float, bool]], edges: Sequence[float], counted: str, met: str
) -> list[dict[str, float]]:
    """Between neighbouring edges: how many, the mean of what is stated, the share that is met.

    `counted` and `met` are the keys of the first and the last.
    """
    rows = []
    for low, high in pairwise(edges):
        inside = [pair for pair in pairs if low <= pair[0] < high]
        if inside:
            stated, share = np.mean(np.array(inside, dtype=np.float64), axis=0)
            row = {"from": low, counted: len(inside)}
            rows.append({**row, "stated": round(stated, 3), met: round(share, 3)})
    return rows
