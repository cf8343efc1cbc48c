"""Convolutional front end: four feature frames become one encoder frame."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

RATE = 4
CONTEXT_FRAMES = 7  # feature frames that one encoder frame looks at
BLOCK_FRAMES = 1024  # encoder frames per convolution, which bounds the memory of long files


class ConvSubsampling(nn.Module):
    """Two 3×3 convolutions of stride 2 and a projection, scaled by √output_size."""

    projection: Tensor

    def __init__(self, num_mel_bins: int, output_size: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, output_size, 3, 2),
            nn.ReLU(),
            nn.Conv2d(output_size, output_size, 3, 2),
            nn.ReLU(),
        )
        self.bands = ((num_mel_bins - 1) // 2 - 1) // 2
        linear = nn.Linear(output_size * self.bands, output_size)
        self.out = nn.Sequential(linear)  # WeNet's name for it is out.0
        self._linear = (linear,)  # a tuple, so that it has no second name
        self.scale = math.sqrt(output_size)

    def prepare(self) -> None:
        """Lay the weights out for channels-last convolution, which is the fast one on CPUs."""
        self.conv.to(memory_format=torch.channels_last)
        weight = self._linear[0].weight
        # (D, channels · bands) → (D, bands · channels), the order in which channels-last
        # activations lie in memory
        by_band = weight.view(weight.shape[0], -1, self.bands).transpose(1, 2).flatten(1)
        self.register_buffer("projection", by_band.contiguous(), persistent=False)

    def forward(self, feats: Tensor) -> Tensor:
        """Encoder input (B, T', D) from features (B, T, num_mel_bins); T' is 0 if T < 7."""
        frames = max(((feats.shape[1] - 1) // 2 - 1) // 2, 0)
        blocks = [
            self._block(
                feats[
                    :,
                    first * RATE : (min(first + BLOCK_FRAMES, frames) - 1) * RATE + CONTEXT_FRAMES,
                ]
            )
            for first in range(0, frames, BLOCK_FRAMES)
        ]
        if not blocks:
            return feats.new_zeros(feats.shape[0], 0, self._linear[0].out_features)
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    def _block(self, feats: Tensor) -> Tensor:
        images = feats.unsqueeze(1).contiguous(memory_format=torch.channels_last)
        maps: Tensor = self.conv(images).permute(0, 2, 3, 1)  # (B, T', bands, channels)
        return (
            nn.functional.linear(maps.flatten(2), self.projection, self._linear[0].bias)
            * self.scale
        )
