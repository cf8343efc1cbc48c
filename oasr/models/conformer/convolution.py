"""Convolution module of a conformer block."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from oasr.models.conformer.feed_forward import ACTIVATIONS
from oasr.models.conformer.layers import normalise, pointwise

# Up to so many output frames a CPU filters faster as products than with its convolution.
FRAMES_AS_PRODUCTS = 64


class ConvolutionModule(nn.Module):
    """Pointwise, gated, depthwise over time, normalised, pointwise.

    The causal form looks at the kernel − 1 frames before a frame and at none after it. Before
    its first frame the network sees zeros in front of the first pointwise convolution; what
    that one and the gate make of zeros, the same for every frame, is taken off the frames and
    put into the bias of the filter. So the history is of gated frames, each computed once, and
    of zeros before the first.
    """

    gated_zero: Tensor
    filter_bias: Tensor

    def __init__(self, size: int, kernel: int, norm: str, activation: str, causal: bool) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(size, 2 * size, 1)
        self.depthwise_conv = nn.Conv1d(size, size, kernel, groups=size)
        self.norm = nn.LayerNorm(size) if norm == "layer_norm" else nn.BatchNorm1d(size)
        self.pointwise_conv2 = nn.Conv1d(size, size, 1)
        self._activation = ACTIVATIONS[activation]
        self._causal = causal
        self._kernel = kernel

    def prepare(self) -> None:
        """Move what the causal form makes of zeros into the bias of the filter."""
        first, bias = self.pointwise_conv1.bias, self.depthwise_conv.bias
        assert first is not None  # both are made with one
        assert bias is not None
        zero = functional.glu(first.float(), dim=0)
        if self._causal:
            sums = self.depthwise_conv.weight.float().sum(dim=(1, 2))
            bias = (bias.float() + zero * sums).to(bias)
        self.register_buffer("gated_zero", zero.to(first), persistent=False)
        self.register_buffer("filter_bias", bias, persistent=False)

    def forward(
        self, x: Tensor, history: Tensor | None, padding: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Output (B, T, D) for x (B, T, D), and the history for the frames that follow.

        `history` (B, D, kernel − 1) is what this returned for the frames before x, None for
        zeros; it is None in and out unless the module is causal. `padding` (B, T) marks frames
        past the end of their row: they count as the zeros beyond an end.
        """
        gated = functional.glu(pointwise(self.pointwise_conv1, x), dim=-1)
        if self._causal:
            gated = self._with_history(gated - self.gated_zero, history)
            history = gated[:, gated.shape[1] - self._kernel + 1 :].transpose(1, 2)
        elif padding is not None:
            gated = gated.masked_fill(padding.unsqueeze(-1), 0.0)
        return self._filter(gated), history

    def _with_history(self, gated: Tensor, history: Tensor | None) -> Tensor:
        if history is None:
            return functional.pad(gated, (0, 0, self._kernel - 1, 0))
        return torch.cat((history.transpose(1, 2), gated), dim=1)

    def _filter(self, gated: Tensor) -> Tensor:
        weight = self.depthwise_conv.weight
        frames = gated.shape[0] * (gated.shape[1] - self._kernel + 1)
        if self._causal and not gated.is_cuda and frames <= FRAMES_AS_PRODUCTS:
            products = gated.unfold(1, self._kernel, 1) * weight[:, 0]
            return self._finish(products.sum(dim=-1) + self.filter_bias)
        # As an image of height 1 the frames are already channels-last: no copy is needed.
        image = gated.transpose(1, 2).unsqueeze(2)
        side = 0 if self._causal else (self._kernel - 1) // 2
        image = functional.conv2d(
            image,
            weight.unsqueeze(2),
            self.filter_bias,
            padding=(0, side),
            groups=weight.shape[0],
        )
        return self._finish(image.squeeze(2).transpose(1, 2))

    def _finish(self, frames: Tensor) -> Tensor:
        if isinstance(self.norm, nn.BatchNorm1d):
            frames = self.norm(frames.transpose(1, 2)).transpose(1, 2)
        else:
            frames = normalise(self.norm, frames)
        return pointwise(self.pointwise_conv2, self._activation(frames))
