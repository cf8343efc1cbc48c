"""Where the result hangs on less than what the shape of a batch may change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Log posteriors of one signal differ by up to 1e-4 between batches of different shapes.
NEAR_TIE: Final = 1e-3

# A token that is likelier than all others together by that much has no near rival.
_UNSURE: Final = math.log(0.5) + NEAR_TIE


def near_tie_frames(log_probs: Tensor, best: NDArray[np.float32]) -> NDArray[np.bool_]:
    """The frames (B, T) whose two best tokens are nearer than NEAR_TIE.

    From log posteriors (B, T, V) and those of the `best` tokens (B, T). Only frames without a
    clear best token are looked at again.
    """
    found = best < _UNSURE
    rows, frames = np.nonzero(found)
    if len(rows):
        unsure = log_probs[torch.from_numpy(rows), torch.from_numpy(frames)].float()
        first, second = unsure.topk(2, dim=-1).values.unbind(-1)
        found[rows, frames] = (first - second < NEAR_TIE).cpu().numpy()
    return found


def is_near_tie(scores: Sequence[float]) -> bool:
    """Whether the best two of `scores`, best first, are nearer than NEAR_TIE."""
    return len(scores) > 1 and scores[0] - scores[1] < NEAR_TIE
