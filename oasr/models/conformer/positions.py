"""Sinusoidal encodings of absolute positions, and what the attention layers make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oasr.models.conformer.attention import PositionKeyAttention

TABLE_BLOCK = 512


def position_encodings(first: int, count: int, size: int) -> Tensor:
    """Encodings (count, size) of positions first, first + 1, …: sine and cosine alternate."""
    positions = torch.arange(first, first + count, dtype=torch.float32).unsqueeze(1)
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float32) * -(math.log(10_000.0) / size))
    angles = positions * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class PositionTable(nn.Module):
    """Projected position encodings of all layers, grown on demand by whole blocks.

    A position's row is always computed in the same block of positions, so its bits do not
    depend on when the table grew.
    """

    keys: Tensor
    scores: Tensor

    def __init__(self, layers: Sequence[PositionKeyAttention], size: int) -> None:
        super().__init__()
        self._layers = tuple(layers)  # a tuple: the weights stay the encoder's
        self._size = size
        self.clear()

    def clear(self) -> None:
        """Forget all rows: the weights, their type or their device have changed."""
        weight = self._layers[0].linear_pos.weight
        heads = self._layers[0].heads
        shape = (0, len(self._layers), heads, self._size // heads)
        self.register_buffer("keys", weight.new_zeros(shape), persistent=False)
        self.register_buffer("scores", weight.new_zeros(shape[:-1]), persistent=False)

    def reserve(self, frames: int) -> None:
        """Have rows for positions 0 … frames − 1."""
        keys, scores = [self.keys], [self.scores]
        for first in range(self.keys.shape[0], frames, TABLE_BLOCK):
            block_keys, block_scores = self.project(first, TABLE_BLOCK)
            keys.append(block_keys)
            scores.append(block_scores)
        if len(keys) > 1:
            self.keys, self.scores = torch.cat(keys), torch.cat(scores)

    def project(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Key parts (count, layers, H, d) and score parts (count, layers, H), not kept."""
        like = self.keys
        encodings = position_encodings(first, count, self._size).to(like.device, like.dtype)
        parts = [layer.position_keys(encodings) for layer in self._layers]
        return torch.stack([p[0] for p in parts], 1), torch.stack([p[1] for p in parts], 1)
