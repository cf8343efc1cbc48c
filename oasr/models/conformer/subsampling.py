"""Convolutional front end: feature frames become encoder frames."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from oasr.models.conformer.layers import by_input
from oasr.models.conformer.settings import Subsampling

# Encoder frames of one row that a CPU convolves at once: the maps between the convolutions
# stay in its cache, and a row's bits do not depend on its batch mates.
TILE_FRAMES = 16

# Encoder frames projected at once, over all rows: bounds the memory of long files.
FRAMES_PER_PROJECTION = 4096


class ConvSubsampling(nn.Module):
    """Convolutions and a projection, scaled by √output_size."""

    projection: Tensor

    def __init__(self, kind: Subsampling, num_mel_bins: int, output_size: int) -> None:
        super().__init__()
        self.kind = kind
        self.conv = nn.Sequential()
        channels = 1
        for kernel, stride in zip(kind.kernels, kind.strides, strict=True):
            self.conv.append(nn.Conv2d(channels, output_size, kernel, stride))
            self.conv.append(nn.ReLU(inplace=True))
            channels = output_size
        self._convolutions = tuple(self.conv[::2])
        self.bands = kind.outputs(num_mel_bins)
        linear = nn.Linear(output_size * self.bands, output_size)
        self._linear = (linear,)  # a tuple, so that it has no second name
        name = kind.projection.removesuffix(".0")
        self.add_module(name, linear if name == kind.projection else nn.Sequential(linear))
        self.scale = math.sqrt(output_size)

    def prepare(self) -> None:
        """Lay the weights out for channels-last convolution, which is the fast one on CPUs."""
        self.conv.to(memory_format=torch.channels_last)
        weight = self._linear[0].weight
        # (D, channels · bands) → (D, bands · channels), the order in which channels-last
        # activations lie in memory
        by_band = weight.view(weight.shape[0], -1, self.bands).transpose(1, 2).flatten(1)
        self.register_buffer("projection", by_input(by_band), persistent=False)

    def forward(self, feats: Tensor) -> Tensor:
        """Encoder input (B, T', D) from features (B, T, num_mel_bins); T' may be 0."""
        rows, frames = feats.shape[0], self.kind.outputs(feats.shape[1])
        if rows == 0 or frames == 0:
            return feats.new_zeros(rows, 0, self._linear[0].out_features)
        step = max(FRAMES_PER_PROJECTION // rows, TILE_FRAMES) // TILE_FRAMES * TILE_FRAMES
        blocks = [
            self._project(self._convolve(self._window(feats, first, min(first + step, frames))))
            for first in range(0, frames, step)
        ]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    def _window(self, feats: Tensor, first: int, stop: int) -> Tensor:
        """The features from which encoder frames `first` … `stop` − 1 are computed."""
        rate = self.kind.rate
        return feats[:, first * rate : (stop - 1) * rate + self.kind.right_context + 1]

    def _project(self, maps: Tensor) -> Tensor:
        linear = nn.functional.linear(maps.flatten(2), self.projection, self._linear[0].bias)
        return linear * self.scale

    def _convolve(self, feats: Tensor) -> Tensor:
        """Maps (B, T', bands, channels), tile by tile on a CPU, all at once elsewhere."""
        if feats.is_cuda:
            images = feats.unsqueeze(1).contiguous(memory_format=torch.channels_last)
            maps: Tensor = self.conv(images)
            return maps.permute(0, 2, 3, 1)
        rows, frames = feats.shape[0], self.kind.outputs(feats.shape[1])
        found = feats.new_empty(rows, frames, self.bands, self._linear[0].out_features)
        for row in range(rows):
            for first in range(0, frames, TILE_FRAMES):
                stop = min(first + TILE_FRAMES, frames)
                tile = self._window(feats[row : row + 1], first, stop)
                self._convolve_tile(tile, found[row : row + 1, first:stop])
        return found

    def _convolve_tile(self, feats: Tensor, out: Tensor) -> None:
        """Maps of one row, written to `out` (1, T', bands, channels) by the last activation."""
        maps = feats.unsqueeze(1).contiguous(memory_format=torch.channels_last)
        for conv in self._convolutions[:-1]:
            maps = conv(maps).relu_()
        maps = self._convolutions[-1](maps)
        torch.clamp_min(maps.permute(0, 2, 3, 1), 0.0, out=out)
