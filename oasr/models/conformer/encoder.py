"""Conformer and transformer blocks, and the encoder that stacks them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from oasr.models.conformer.attention import Attend, PositionKeyAttention, SelfAttention
from oasr.models.conformer.convolution import ConvolutionModule
from oasr.models.conformer.feed_forward import FeedForward
from oasr.models.conformer.layers import normalise
from oasr.models.conformer.settings import ModelSettings
from oasr.models.conformer.subsampling import ConvSubsampling


class BlockContext(NamedTuple):
    """What one block is given besides its frames."""

    position_keys: Tensor | None  # (B or 1, H, T, d)
    attend: Attend
    past: Tensor | None = None  # (B, H, S, 2d)
    conv_history: Tensor | None = None  # (B, D, kernel − 1)
    padding: Tensor | None = None  # (B, T) True past the end of a row


class BlockResult(NamedTuple):
    """Frames out of one block and what its caches get."""

    frames: Tensor  # (B, T, D)
    entries: Tensor  # (B, H, T, 2d)
    conv_history: Tensor | None  # (B, D, kernel − 1)


def _attention(settings: ModelSettings) -> SelfAttention:
    kind = PositionKeyAttention if settings.pos_enc == "rel_pos" else SelfAttention
    return kind(settings.output_size, settings.attention_heads)


class TransformerBlock(nn.Module):
    """Attention and feed-forward, each with a residual."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        size = settings.output_size
        self.self_attn = _attention(settings)
        self.feed_forward = FeedForward(size, settings.linear_units, settings.activation)
        self.norm1 = nn.LayerNorm(size)
        self.norm2 = nn.LayerNorm(size)

    def prepare(self) -> None:
        """Derive what `forward` reads from the weights as they are now."""
        self.self_attn.prepare()

    def forward(self, x: Tensor, context: BlockContext) -> BlockResult:
        """Advance frames x (B, T, D) through the block; the history is handed through."""
        attended, entries = self.self_attn(
            normalise(self.norm1, x), context.position_keys, context.past, context.attend
        )
        x = x + attended
        x = x + self.feed_forward(normalise(self.norm2, x))
        return BlockResult(x, entries, context.conv_history)


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, convolution, the other half, each with a residual."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        size, activation = settings.output_size, settings.activation
        self.self_attn = _attention(settings)
        self.feed_forward = FeedForward(size, settings.linear_units, activation)
        self.conv_module = ConvolutionModule(
            size, settings.kernel, settings.conv_norm, activation, settings.causal
        )
        self.feed_forward_macaron: FeedForward | None = None
        if settings.macaron:
            self.feed_forward_macaron = FeedForward(size, settings.linear_units, activation)
            self.norm_ff_macaron = nn.LayerNorm(size)
        self.norm_ff = nn.LayerNorm(size)
        self.norm_mha = nn.LayerNorm(size)
        self.norm_conv = nn.LayerNorm(size)
        self.norm_final = nn.LayerNorm(size)
        self._ff_scale = 0.5 if settings.macaron else 1.0

    def prepare(self) -> None:
        """Derive what `forward` reads from the weights as they are now."""
        self.self_attn.prepare()
        self.conv_module.prepare()

    def forward(self, x: Tensor, context: BlockContext) -> BlockResult:
        """Advance frames x (B, T, D) through the block."""
        if self.feed_forward_macaron is not None:
            half = self.feed_forward_macaron(normalise(self.norm_ff_macaron, x))
            x = torch.add(x, half, alpha=self._ff_scale)
        attended, entries = self.self_attn(
            normalise(self.norm_mha, x), context.position_keys, context.past, context.attend
        )
        x = x + attended
        filtered, history = self.conv_module(
            normalise(self.norm_conv, x), context.conv_history, context.padding
        )
        x = x + filtered
        x = torch.add(x, self.feed_forward(normalise(self.norm_ff, x)), alpha=self._ff_scale)
        return BlockResult(normalise(self.norm_final, x), entries, history)


class GlobalCmvn(nn.Module):
    """Normalises features by the mean and deviation of the training data."""

    mean: Tensor
    istd: Tensor

    def __init__(self, mean: Tensor, istd: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("istd", istd)

    def forward(self, feats: Tensor) -> Tensor:
        """(B, T, num_mel_bins) → the same."""
        return (feats - self.mean) * self.istd


class Encoder(nn.Module):
    """The parts of the encoder under their WeNet names; `ConformerModel` runs them."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.global_cmvn: GlobalCmvn | None = None
        if settings.cmvn_file is not None:
            bins = settings.num_mel_bins
            self.global_cmvn = GlobalCmvn(torch.zeros(bins), torch.ones(bins))
        self.embed = ConvSubsampling(
            settings.subsampling, settings.num_mel_bins, settings.output_size
        )
        block = ConformerBlock if settings.encoder == "conformer" else TransformerBlock
        self.blocks: tuple[ConformerBlock | TransformerBlock, ...] = tuple(
            block(settings) for _ in range(settings.num_blocks)
        )
        self.encoders = nn.ModuleList(self.blocks)
        self.after_norm = nn.LayerNorm(settings.output_size)
