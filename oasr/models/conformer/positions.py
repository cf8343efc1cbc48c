"""Where a frame is: sinusoidal encodings of absolute positions, in the keys or in the input."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from oasr.models.conformer.attention import PositionKeyAttention, hidden_score
from oasr.models.conformer.position_table import TABLE_BLOCK, PositionTable


def position_encodings(first: int, count: int, size: int) -> Tensor:
    """Encodings (count, size) of positions first, first + 1, …: sine and cosine alternate.

    Angles are in double precision: single precision is off by 5e-3 after an hour.
    """
    positions = torch.arange(first, first + count, dtype=torch.float64).unsqueeze(1)
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * -(math.log(10_000.0) / size))
    angles = positions * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


class Positions(nn.Module, ABC):
    """Tells the frames of a network where they are.

    What streams need is kept in tables. Whole utterances are not served from them.
    """

    @abstractmethod
    def clear(self, like: Tensor) -> None:
        """Forget all rows; new ones are for weights as they are now, shaped `like` this one."""

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


def _is_capturing(offsets: Tensor) -> bool:
    return offsets.is_cuda and torch.cuda.is_current_stream_capturing()


class KeyPositions(Positions):
    """Positions in the keys: each layer projects the encodings."""

    def __init__(self, layers: Sequence[PositionKeyAttention], size: int) -> None:
        super().__init__()
        self._layers = tuple(layers)  # a tuple: the weights stay the encoder's
        self._size = size

    def clear(self, like: Tensor) -> None:
        heads = self._layers[0].heads
        shape = (0, len(self._layers), heads, self._size // heads)
        self._keys = PositionTable(self._key_rows, like.new_zeros(shape))
        self._scores = PositionTable(self._score_rows, like.new_zeros(shape[:-1]))

    def _rows_of_layers(self, first: int) -> list[tuple[Tensor, Tensor]]:
        like = self._layers[0].linear_pos.weight
        encodings = position_encodings(first, TABLE_BLOCK, self._size).to(like)
        return [layer.position_keys(encodings) for layer in self._layers]

    def _key_rows(self, first: int) -> Tensor:
        return torch.stack([keys for keys, _ in self._rows_of_layers(first)], 1)

    def _score_rows(self, first: int) -> Tensor:
        return torch.stack([scores for _, scores in self._rows_of_layers(first)], 1)

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
        cached = kv_mask.shape[1]
        if not _is_capturing(offsets):
            firsts = offsets.numpy(force=True)
            self._keys.hold(firsts, firsts + chunk)
            self._scores.hold((firsts - cached).clip(0), firsts + chunk)
        span = torch.arange(-cached, chunk, device=offsets.device)
        rows = (offsets.unsqueeze(1) + span).to(kv_mask.device)
        keys = self._keys[rows[:, cached:]].permute(2, 0, 3, 1, 4)
        bias = self._scores[rows.clamp_min(0)].permute(2, 0, 3, 1).unsqueeze(3)
        return tuple(keys), _hide(bias, kv_mask)


class InputPositions(Positions):
    """Positions in the encoder's input: its attention is told nothing of them."""

    def __init__(self, num_layers: int, size: int) -> None:
        super().__init__()
        self._num_layers = num_layers
        self._size = size

    def clear(self, like: Tensor) -> None:
        self._dtype = like.dtype
        self._table = PositionTable(self._rows, like.new_zeros(0, self._size))

    def _rows(self, first: int) -> Tensor:
        return position_encodings(first, TABLE_BLOCK, self._size)

    def embed(self, x: Tensor, encodings: Tensor) -> Tensor:
        return x + encodings

    def embed_chunk(self, x: Tensor, offsets: Tensor) -> Tensor:
        chunk = x.shape[1]
        if not _is_capturing(offsets):
            firsts = offsets.numpy(force=True)
            self._table.hold(firsts, firsts + chunk)
        span = torch.arange(chunk, device=offsets.device)
        return x + self._table[(offsets.unsqueeze(1) + span).to(x.device)]

    def of_layer(self, index: int, encodings: Tensor) -> tuple[Tensor | None, Tensor]:  # noqa: ARG002
        return None, encodings.new_zeros(1, encodings.shape[0])

    def of_chunk(
        self,
        offsets: Tensor,  # noqa: ARG002
        kv_mask: Tensor,
        chunk: int,
    ) -> tuple[Sequence[Tensor | None], Tensor]:
        streams, cached = kv_mask.shape
        shape = (1, streams, 1, 1, cached + chunk)
        bias = torch.zeros(shape, dtype=self._dtype, device=kv_mask.device)
        return [None] * self._num_layers, _hide(bias, kv_mask)


def _hide(bias: Tensor, kv_mask: Tensor) -> Tensor:
    """`bias` (layers, B, H, 1, S + chunk) without the columns outside `kv_mask` (B, S)."""
    hidden = nn.functional.pad(~kv_mask, (0, bias.shape[-1] - kv_mask.shape[1]))
    return bias.masked_fill(hidden[None, :, None, None, :], hidden_score(bias.dtype))
