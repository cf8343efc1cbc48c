"""Self-attention with positions in the keys.

WeNet scores query i against key j as ((q_i + u)·k_j + (q_i + v)·p_j) / √d, where p_j is the
projected encoding of the key's absolute position (no relative shift). That is

    ((q_i + u)·(k_j + p_j) + (v − u)·p_j) / √d,

so the position goes into the key once and for all, and what is left is one number per head
and position. Cached keys carry their position with them: streams at different offsets need
no position tables of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from oasr.models.conformer.layers import by_input

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries (B, H, T, d), keys and values (B, H, S, d) → (B, H, T, d)."""

SCORES_PER_BLOCK = 1 << 24  # bounds the score matrix of long files to 64 MiB in fp32
MASKED_QUERIES_PER_BLOCK = 256  # keys that a whole block cannot see are not computed


class SelfAttention(nn.Module):
    """Projections of one block's attention; which key sees which query is the caller's."""

    qkv_weight: Tensor
    qkv_bias: Tensor

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.linear_v = nn.Linear(size, size)
        self.linear_out = nn.Linear(size, size)

    def prepare(self) -> None:
        """Join the three projections."""
        linears = (self.linear_q, self.linear_k, self.linear_v)
        weight = torch.cat([linear.weight for linear in linears])
        self.register_buffer("qkv_weight", by_input(weight), persistent=False)
        bias = torch.cat([linear.bias for linear in linears])
        self.register_buffer("qkv_bias", bias, persistent=False)

    def forward(
        self, x: Tensor, position_keys: Tensor | None, past: Tensor | None, attend: Attend
    ) -> tuple[Tensor, Tensor]:
        """Output (B, T, D) for x (B, T, D), and the cache entries of its frames.

        `position_keys` (B or 1, H, T, d) belong to the frames of x; `past` (B, H, S, 2d) are
        cache entries of the frames before them. Cache entries are keys with their position,
        then values.
        """
        qkv = functional.linear(x, self.qkv_weight, self.qkv_bias)
        q, k, v = qkv.view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        entries = torch.cat((k if position_keys is None else k + position_keys, v), dim=-1)
        held = entries if past is None else torch.cat((past, entries), dim=2)
        keys, values = held.chunk(2, dim=-1)
        context = attend(q, keys, values).transpose(1, 2).flatten(2)
        return self.linear_out(context), entries


class PositionKeyAttention(SelfAttention):
    """Self-attention that knows its keys' positions."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__(size, heads)
        self.linear_pos = nn.Linear(size, size, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, size // heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, size // heads))

    def prepare(self) -> None:
        """Join the three projections; `u` moves into the bias of the queries."""
        super().prepare()
        self.qkv_bias[: self.pos_bias_u.numel()] += self.pos_bias_u.flatten()

    def position_keys(self, encodings: Tensor) -> tuple[Tensor, Tensor]:
        """Key parts (T, H, d) and score parts (T, H), already scaled, of encodings (T, D)."""
        keys: Tensor = self.linear_pos(encodings)
        keys = keys.view(keys.shape[0], self.heads, -1)
        difference = (self.pos_bias_v - self.pos_bias_u).float()
        scores = (keys.float() * difference).sum(dim=-1) / math.sqrt(keys.shape[-1])
        return keys, scores.to(keys.dtype)


def hidden_score(dtype: torch.dtype) -> float:
    """A score so low that its key gets a weight of exactly zero beside any other."""
    return torch.finfo(dtype).min / 2


def attend_with_bias(bias: Tensor, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention with `bias` (broadcast to B, H, T, S) added to the scaled scores."""
    return functional.scaled_dot_product_attention(q, keys, values, attn_mask=bias)


class ChunkMask:
    """Which keys a query of a whole utterance sees.

    Query i sees all keys of its own chunk and of `num_left_chunks` chunks before it (all of
    them if negative); without chunks (`chunk_size` < 1) it sees every key.
    """

    def __init__(self, chunk_size: int, num_left_chunks: int) -> None:
        self.chunk_size = chunk_size
        self._left = num_left_chunks

    def queries_per_block(self, limit: int) -> int:
        """How many queries to score at once, at most `limit`, with few hidden keys among them."""
        if self.chunk_size < 1:
            return limit
        if self._left < 0:
            return min(limit, MASKED_QUERIES_PER_BLOCK)
        return min(limit, max((self._left + 1) * self.chunk_size, MASKED_QUERIES_PER_BLOCK // 4))

    def key_span(self, first_query: int, past_query: int, frames: int) -> tuple[int, int]:
        """First and past-the-end key that any of the queries sees."""
        if self.chunk_size < 1:
            return 0, frames
        stop = ((past_query - 1) // self.chunk_size + 1) * self.chunk_size
        start = (
            (first_query // self.chunk_size - self._left) * self.chunk_size
            if self._left >= 0
            else 0
        )
        return max(start, 0), min(stop, frames)

    def hidden(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """True (T, S) where a query index must not see a key index; None if it sees all."""
        if self.chunk_size < 1:
            return None
        query_chunks = (queries // self.chunk_size).unsqueeze(1)
        key_chunks = (keys // self.chunk_size).unsqueeze(0)
        hidden = key_chunks > query_chunks
        return hidden if self._left < 0 else hidden | (key_chunks < query_chunks - self._left)


class BlockwiseAttend:
    """Attention of whole utterances in blocks of queries: no matrix of all against all."""

    def __init__(self, mask: ChunkMask, padding: Tensor | None) -> None:
        """`padding` (B, T) is True for frames past the end of their row."""
        self._mask = mask
        self._padding = padding

    def __call__(self, position_scores: Tensor, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """`position_scores` (H or 1, T) of the keys; the rest as in `Attend`."""
        rows, heads, frames, _ = q.shape
        limit = max(SCORES_PER_BLOCK // (rows * heads * frames), 1)
        block = self._mask.queries_per_block(limit)
        # Written in place: results kept apart would lie between the ever larger biases, and the
        # heap could not use their memory again.
        context = torch.empty_like(q)
        for first in range(0, frames, block):
            stop = min(first + block, frames)
            low, high = self._mask.key_span(first, stop, frames)
            bias = self._bias(position_scores, (first, stop), (low, high))
            context[:, :, first:stop] = attend_with_bias(
                bias, q[:, :, first:stop], keys[:, :, low:high], values[:, :, low:high]
            )
        return context

    def _bias(
        self, position_scores: Tensor, queries: tuple[int, int], keys: tuple[int, int]
    ) -> Tensor:
        bias = position_scores[None, :, None, slice(*keys)]  # (1, H or 1, 1, S)
        low = hidden_score(bias.dtype)
        if self._padding is not None:
            bias = bias.masked_fill(self._padding[:, None, None, slice(*keys)], low)
        device = bias.device
        hidden = self._mask.hidden(
            torch.arange(*queries, device=device), torch.arange(*keys, device=device)
        )
        return bias if hidden is None else bias.masked_fill(hidden, low)
