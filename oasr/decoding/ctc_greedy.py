"""CTC greedy search whose result does not depend on where chunks end."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def best_path(log_probs: Tensor) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The best token of every frame and its log posterior, both (B, T), from (B, T, V).

    One reduction on the device and one transfer for the whole batch.
    """
    scores, ids = log_probs.float().max(dim=-1)
    packed = torch.stack((ids.int(), scores.view(torch.int32))).cpu().numpy()
    return packed[0], packed[1].view(np.float32)


class GreedyDecoder:
    """Search state of one stream.

    A run of equal best tokens emits one token, at the frame where its posterior is highest
    (the earliest of equals). A run may go on in the next chunk: its frame and score then
    still move to the later peak.
    """

    def __init__(self, blank_id: int) -> None:
        self._blank_id = blank_id
        self._last_frame = -2  # last non-blank frame; -2 touches no frame
        self.near_tie = False  # a frame had two best tokens, as good as equal
        self.tokens: list[int] = []
        self.token_frames: list[int] = []
        self.scores: list[float] = []

    def update(self, ids: NDArray[np.int32], scores: NDArray[np.float32], first_frame: int) -> bool:
        """Advance over frames `first_frame` … (T,) of `best_path`; True if a token was added."""
        count = len(self.tokens)
        for index in np.flatnonzero(ids != self._blank_id).tolist():
            frame = first_frame + index
            self._emit(int(ids[index]), frame, float(scores[index]))
        return len(self.tokens) > count

    def _emit(self, token: int, frame: int, score: float) -> None:
        run_goes_on = frame == self._last_frame + 1 and self.tokens[-1] == token
        self._last_frame = frame
        if not run_goes_on:
            self.tokens.append(token)
            self.token_frames.append(frame)
            self.scores.append(score)
        elif score > self.scores[-1]:
            self.token_frames[-1] = frame
            self.scores[-1] = score
