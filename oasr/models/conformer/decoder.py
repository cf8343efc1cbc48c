"""Attention decoders: how likely given texts are beside the encoder frames of an utterance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from oasr.models.conformer.attention import SCORES_PER_BLOCK, SelfAttention
from oasr.models.conformer.feed_forward import FeedForward
from oasr.models.conformer.positions import position_encodings
from oasr.models.conformer.settings import DecoderSettings, ModelSettings

# Tokens of all hypotheses of one forward, and of one product with the units: they bound the
# memory of long files.
TOKENS_PER_FORWARD = 8192
TOKENS_PER_PROJECTION = 1024

ACTIVATION = "relu"


class CrossAttention(nn.Module):
    """Attention of the tokens of all hypotheses to the encoder frames that they share."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.linear_v = nn.Linear(size, size)
        self.linear_out = nn.Linear(size, size)

    def forward(self, x: Tensor, encoded: Tensor) -> Tensor:
        """(N, L, D) for tokens x (N, L, D) and encoder frames (T, D), T > 0."""
        q = self._by_head(self.linear_q(x).flatten(0, 1))
        keys = self._by_head(self.linear_k(encoded))
        values = self._by_head(self.linear_v(encoded))
        block = max(SCORES_PER_BLOCK // (self.heads * encoded.shape[0]), 1)
        parts = [
            functional.scaled_dot_product_attention(part, keys, values)
            for part in torch.split(q, block, dim=2)
        ]
        context = torch.cat(parts, dim=2).transpose(1, 2).reshape(x.shape)
        out: Tensor = self.linear_out(context)
        return out

    def _by_head(self, x: Tensor) -> Tensor:
        """(M, D) → (1, H, M, d)."""
        return x.view(1, x.shape[0], self.heads, -1).transpose(1, 2)


class DecoderBlock(nn.Module):
    """Attention to the tokens before, attention to the frames, feed-forward."""

    def __init__(self, size: int, settings: DecoderSettings) -> None:
        super().__init__()
        self.self_attn = SelfAttention(size, settings.attention_heads)
        self.src_attn = CrossAttention(size, settings.attention_heads)
        self.feed_forward = FeedForward(size, settings.linear_units, ACTIVATION)
        self.norm1 = nn.LayerNorm(size)
        self.norm2 = nn.LayerNorm(size)
        self.norm3 = nn.LayerNorm(size)

    def forward(self, x: Tensor, encoded: Tensor) -> Tensor:
        """(N, L, D) for tokens x (N, L, D) and encoder frames (T, D)."""
        x = x + self.self_attn(self.norm1(x), None, None, _attend_to_the_past)[0]
        x = x + self.src_attn(self.norm2(x), encoded)
        out: Tensor = x + self.feed_forward(self.norm3(x))
        return out


class TransformerDecoder(nn.Module):
    """One direction of reading."""

    def __init__(self, settings: ModelSettings, num_blocks: int) -> None:
        super().__init__()
        size = settings.output_size
        self.embed = nn.Sequential(nn.Embedding(settings.vocab, size))  # WeNet's name: embed.0
        self.blocks = tuple(DecoderBlock(size, settings.decoder) for _ in range(num_blocks))
        self.decoders = nn.ModuleList(self.blocks)
        self.after_norm = nn.LayerNorm(size)
        self.output_layer = nn.Linear(size, settings.vocab)

    def forward(self, inputs: Tensor, targets: Tensor, encoded: Tensor) -> Tensor:
        """Log probabilities (N, L), float32, of `targets` (N, L) after `inputs` (N, L)."""
        x = self.embed(inputs)
        encodings = position_encodings(0, x.shape[1], x.shape[2]).to(x)
        x = x * math.sqrt(x.shape[2]) + encodings
        for block in self.blocks:
            x = block(x, encoded)
        x = self.after_norm(x).flatten(0, 1)
        return torch.cat(tuple(self._log_probs(x, targets.flatten()))).view(targets.shape)

    def _log_probs(self, x: Tensor, targets: Tensor) -> Iterator[Tensor]:
        step = TOKENS_PER_PROJECTION
        for rows, row_targets in zip(torch.split(x, step), torch.split(targets, step), strict=True):
            logits = self.output_layer(rows).float()
            chosen = logits.gather(1, row_targets.unsqueeze(1)).squeeze(1)
            yield chosen - logits.logsumexp(1)


class AttentionDecoder(nn.Module):
    """The decoder of a checkpoint, which reads in one direction or in both."""

    def __init__(self, settings: ModelSettings) -> None:
        """Weights are unset: `from_weights` gives a decoder that can be used."""
        super().__init__()
        shape = settings.decoder
        self.bidirectional = shape.bidirectional
        blocks = (shape.num_blocks, shape.right_blocks)[: 1 + shape.bidirectional]
        # a tuple, so that the parameters have WeNet's names alone
        self._directions = tuple(TransformerDecoder(settings, count) for count in blocks)
        self.decoder: nn.Module = self._directions[0]
        if shape.bidirectional:
            names = ("left_decoder", "right_decoder")
            self.decoder = nn.ModuleDict(dict(zip(names, self._directions, strict=True)))
        self._sos, self._eos = settings.sos_id, settings.eos_id
        self.eval()

    @classmethod
    def from_weights(cls, settings: ModelSettings, weights: Mapping[str, Tensor]) -> Self:
        """A decoder of exactly these weights, on their device and in their type."""
        with torch.device("meta"):
            decoder = cls(settings)
        decoder.load_state_dict(weights, assign=True)
        decoder.requires_grad_(False)
        for direction in decoder._directions:
            for block in direction.blocks:
                block.self_attn.prepare()
        return decoder

    def log_probs(
        self, hypotheses: Sequence[Sequence[int]], encoded: Tensor, backwards: bool = False
    ) -> Tensor:
        """How likely each token is after those before it, or `backwards` those behind it.

        `encoded` (T, D), T > 0, are the encoder frames that all hypotheses are about. Row n of
        the result (N, longest + 1), float64 on the CPU, has the log probability of each token
        of hypothesis n in reading order, that of its end after them, and zeros past it.
        """
        longest = max((len(tokens) for tokens in hypotheses), default=0)
        result = torch.zeros(len(hypotheses), longest + 1, dtype=torch.float64)
        group = max(TOKENS_PER_FORWARD // (longest + 1), 1)
        for first in range(0, len(hypotheses), group):
            some = hypotheses[first : first + group]
            found = self._forward(some, encoded, backwards).double().cpu()
            for row, (tokens, values) in enumerate(zip(some, found, strict=True), start=first):
                count = len(tokens)
                read = values[:count].flip(0) if backwards else values[:count]
                result[row, :count] = read
                result[row, count] = values[count]
        return result

    def _forward(
        self, hypotheses: Sequence[Sequence[int]], encoded: Tensor, backwards: bool
    ) -> Tensor:
        spoken = [tokens[::-1] if backwards else tokens for tokens in hypotheses]
        device = encoded.device
        inputs = [torch.tensor([self._sos, *tokens], device=device) for tokens in spoken]
        targets = [torch.tensor([*tokens, self._eos], device=device) for tokens in spoken]
        found: Tensor = self._directions[backwards](
            pad_sequence(inputs, batch_first=True), pad_sequence(targets, batch_first=True), encoded
        )
        return found


def _attend_to_the_past(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """A token sees itself and those before it; what pads a row follows its tokens."""
    return functional.scaled_dot_product_attention(q, keys, values, is_causal=True)
