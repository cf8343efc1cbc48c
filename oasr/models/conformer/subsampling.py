"""Convolutional front end: four feature frames become one encoder frame."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

RATE = 4
CONTEXT_FRAMES = 7  # feature frames that one encoder frame looks at

# Encoder frames of one row that a CPU convolves at once: the maps between the convolutions
# stay in its cache, and a row's bits do not depend on its batch mates.
TILE_FRAMES = 16

# Encoder frames projected at once, over all rows: bounds the memory of long files.
FRAMES_PER_PROJECTION = 4096


class ConvSubsampling(nn.Module):
    """Two 3×3 convolutions of stride 2 and a projection, scaled by √output_size."""

    projection: Tensor

    def __init__(self, num_mel_bins: int, output_size: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, output_size, 3, 2),
            nn.ReLU(inplace=True),
            nn.Conv2d(output_size, output_size, 3, 2),
            nn.ReLU(inplace=True),
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
        rows, frames = feats.shape[0], max(((feats.shape[1] - 1) // 2 - 1) // 2, 0)
        if rows == 0 or frames == 0:
            return feats.new_zeros(rows, 0, self._linear[0].out_features)
        step = max(FRAMES_PER_PROJECTION // rows, TILE_FRAMES) // TILE_FRAMES * TILE_FRAMES
        blocks = [
            self._project(self._convolve(_window(feats, first, min(first + step, frames))))
            for first in range(0, frames, step)
        ]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    def _project(self, maps: Tensor) -> Tensor:
        linear = nn.functional.linear(maps.flatten(2), self.projection, self._linear[0].bias)
        return linear * self.scale

    def _convolve(self, feats: Tensor) -> Tensor:
        """Maps (B, T', bands, channels), tile by tile on a CPU, all at once elsewhere."""
        if feats.is_cuda:
            return self._convolve_tile(feats)
        frames = (feats.shape[1] - CONTEXT_FRAMES) // RATE + 1
        tiles = [
            [
                self._convolve_tile(_window(row, first, min(first + TILE_FRAMES, frames)))
                for first in range(0, frames, TILE_FRAMES)
            ]
            for row in torch.split(feats, 1)
        ]
        return torch.cat([torch.cat(row, dim=1) if len(row) > 1 else row[0] for row in tiles])

    def _convolve_tile(self, feats: Tensor) -> Tensor:
        images = feats.unsqueeze(1).contiguous(memory_format=torch.channels_last)
        maps: Tensor = self.conv(images)
        return maps.permute(0, 2, 3, 1)


def _window(feats: Tensor, first: int, stop: int) -> Tensor:
    """The features from which encoder frames `first` … `stop` − 1 are computed."""
    return feats[:, first * RATE : (stop - 1) * RATE + CONTEXT_FRAMES]
