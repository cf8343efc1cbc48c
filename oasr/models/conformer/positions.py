"""Where a frame is: sinusoidal encodings of absolute positions, in the keys or in the input."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oasr.models.conformer.attention import PositionKeyAttention, hidden_score

TABLE_BLOCK = 512


def position_encodings(first: int, count: int, size: int) -> Tensor:
    """Encodings (count, size) of positions first, first + 1, …: sine and cosine alternate."""
    positions = torch.arange(first, first + count, dtype=torch.float32).unsqueeze(1)
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float32) * -(math.log(10_000.0) / size))
    angles = positions * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class Positions(nn.Module, ABC):
    """Tells the frames of a network where they are.

    What streams need is kept in tables that grow on demand by whole blocks. A position's row is
    always computed in the same block, so its bits do not depend on when the table grew. Whole
    utterances are not served from the tables, which would keep the rows of the longest file.
    """

    @abstractmethod
    def clear(self, like: Tensor) -> None:
        """Forget all rows; new ones are for weights as they are now, shaped `like` this one."""

    @abstractmethod
    def reserve(self, frames: int) -> None:
        """Have rows for positions 0 … frames − 1."""

    @abstractmethod
    def embed(self, x: Tensor, encodings: Tensor) -> Tensor:
        """Encoder input x (B, T, D) of whole utterances; `encodings` (T, D)."""

    @abstractmethod
    def embed_chunk(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Encoder input x (B, chunk, D) of streams whose rows begin at frame `offsets` (B,)."""

    @abstractmethod
    def of_layer(self, index: int, encodings: Tensor) -> tuple[Tensor | None, Tensor]:
        """What layer `index` is told of whole utterances, given `encodings` (T, D).

        Key parts (1, H, T, d), if any, and what is added to the score of each key (H or 1, T).
        """

    @abstractmethod
    def of_chunk(
        self, offsets: Tensor, kv_mask: Tensor, chunk: int
    ) -> tuple[Sequence[Tensor | None], Tensor]:
        """What all layers are told of one window of each of B streams.

        Key parts of a layer (B, H, chunk, d), if any, and what is added to the scores of all
        keys (layers or 1, B, H or 1, 1, S + chunk); columns outside `kv_mask` (B, S) are hidden.
        """

    def reserve_chunk(self, offsets: Tensor, chunk: int) -> None:
        """Have rows for `chunk` frames from each of `offsets` (B,) on."""
        if not (offsets.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.reserve(int(offsets.max()) + chunk)


class KeyPositions(Positions):
    """Positions in the keys: each layer projects the encodings."""

    keys: Tensor  # (frames, layers, H, d)
    scores: Tensor  # (frames, layers, H)

    def __init__(self, layers: Sequence[PositionKeyAttention], size: int) -> None:
        super().__init__()
        self._layers = tuple(layers)  # a tuple: the weights stay the encoder's
        self._size = size

    def clear(self, like: Tensor) -> None:
        heads = self._layers[0].heads
        shape = (0, len(self._layers), heads, self._size // heads)
        self.register_buffer("keys", like.new_zeros(shape), persistent=False)
        self.register_buffer("scores", like.new_zeros(shape[:-1]), persistent=False)

    def reserve(self, frames: int) -> None:
        keys, scores = [self.keys], [self.scores]
        for first in range(self.keys.shape[0], frames, TABLE_BLOCK):
            encodings = position_encodings(first, TABLE_BLOCK, self._size).to(self.keys)
            parts = [layer.position_keys(encodings) for layer in self._layers]
            keys.append(torch.stack([part[0] for part in parts], 1))
            scores.append(torch.stack([part[1] for part in parts], 1))
        if len(keys) > 1:
            self.keys, self.scores = torch.cat(keys), torch.cat(scores)

    def embed(self, x: Tensor, encodings: Tensor) -> Tensor:  # noqa: ARG002
        return x

    def embed_chunk(self, x: Tensor, offsets: Tensor) -> Tensor:  # noqa: ARG002
        return x

    def of_layer(self, index: int, encodings: Tensor) -> tuple[Tensor | None, Tensor]:
        keys, scores = self._layers[index].position_keys(encodings)
        return keys.transpose(0, 1).unsqueeze(0), scores.T

    def of_chunk(
        self, offsets: Tensor, kv_mask: Tensor, chunk: int
    ) -> tuple[Sequence[Tensor | None], Tensor]:
        self.reserve_chunk(offsets, chunk)
        cached = kv_mask.shape[1]
        span = torch.arange(-cached, chunk, device=offsets.device)
        rows = (offsets.unsqueeze(1) + span).to(kv_mask.device)
        keys = self.keys[rows[:, cached:]].permute(2, 0, 3, 1, 4)
        bias = self.scores[rows.clamp_min(0)].permute(2, 0, 3, 1).unsqueeze(3)
        return tuple(keys), _hide(bias, kv_mask)


class InputPositions(Positions):
    """Positions in the encoder's input: its attention is told nothing of them."""

    rows: Tensor  # (frames, D)

    def __init__(self, num_layers: int, size: int) -> None:
        super().__init__()
        self._num_layers = num_layers
        self._size = size

    def clear(self, like: Tensor) -> None:
        self.register_buffer("rows", like.new_zeros(0, self._size), persistent=False)

    def reserve(self, frames: int) -> None:
        rows = [self.rows]
        for first in range(self.rows.shape[0], frames, TABLE_BLOCK):
            rows.append(position_encodings(first, TABLE_BLOCK, self._size).to(self.rows))
        if len(rows) > 1:
            self.rows = torch.cat(rows)

    def embed(self, x: Tensor, encodings: Tensor) -> Tensor:
        return x + encodings

    def embed_chunk(self, x: Tensor, offsets: Tensor) -> Tensor:
        self.reserve_chunk(offsets, x.shape[1])
        span = torch.arange(x.shape[1], device=offsets.device)
        return x + self.rows[(offsets.unsqueeze(1) + span).to(x.device)]

    def of_layer(self, index: int, encodings: Tensor) -> tuple[Tensor | None, Tensor]:  # noqa: ARG002
        return None, encodings.new_zeros(1, encodings.shape[0])

    def of_chunk(
        self,
        offsets: Tensor,  # noqa: ARG002
        kv_mask: Tensor,
        chunk: int,
    ) -> tuple[Sequence[Tensor | None], Tensor]:
        streams, cached = kv_mask.shape
        bias = self.rows.new_zeros(1, streams, 1, 1, cached + chunk)
        return [None] * self._num_layers, _hide(bias, kv_mask)


def _hide(bias: Tensor, kv_mask: Tensor) -> Tensor:
    """`bias` (layers, B, H, 1, S + chunk) without the columns outside `kv_mask` (B, S)."""
    hidden = nn.functional.pad(~kv_mask, (0, bias.shape[-1] - kv_mask.shape[1]))
    return bias.masked_fill(hidden[None, :, None, None, :], hidden_score(bias.dtype))
