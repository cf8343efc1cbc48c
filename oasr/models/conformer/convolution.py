"""Convolution module of a conformer block."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from oasr.models.conformer.feed_forward import ACTIVATIONS


class ConvolutionModule(nn.Module):
    """Pointwise, gated, depthwise over time, normalised, pointwise.

    The causal form looks at the kernel − 1 frames before a frame and at none after it. Its
    history is kept as inputs of the first pointwise convolution: that one has a bias, so
    the zeros before the first frame have to pass through it too.
    """

    def __init__(self, size: int, kernel: int, norm: str, activation: str, causal: bool) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(size, 2 * size, 1)
        self.depthwise_conv = nn.Conv1d(size, size, kernel, groups=size)
        self.norm = nn.LayerNorm(size) if norm == "layer_norm" else nn.BatchNorm1d(size)
        self.pointwise_conv2 = nn.Conv1d(size, size, 1)
        self._activation = ACTIVATIONS[activation]
        self._causal = causal
        self._kernel = kernel

    def forward(
        self, x: Tensor, history: Tensor | None, padding: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Output (B, T, D) for x (B, T, D), and the history for the frames that follow.

        `history` (B, D, kernel − 1) are the inputs of the frames before x, None for zeros;
        it is None in and out unless the module is causal. `padding` (B, T) marks frames
        past the end of their row: they count as the zeros beyond an end.
        """
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        if self._causal:
            x = self._with_history(x, history)
            history = x[:, x.shape[1] - self._kernel + 1 :].transpose(1, 2)
        gated = functional.glu(_pointwise(self.pointwise_conv1, x), dim=-1)
        if padding is not None and not self._causal:
            gated = gated.masked_fill(padding.unsqueeze(-1), 0.0)
        return self._filter(gated), history

    def _with_history(self, x: Tensor, history: Tensor | None) -> Tensor:
        if history is None:
            return functional.pad(x, (0, 0, self._kernel - 1, 0))
        return torch.cat((history.transpose(1, 2), x), dim=1)

    def _filter(self, gated: Tensor) -> Tensor:
        # As an image of height 1 the frames are already channels-last: no copy is needed.
        image = gated.transpose(1, 2).unsqueeze(2)
        weight = self.depthwise_conv.weight.unsqueeze(2)
        side = 0 if self._causal else (self._kernel - 1) // 2
        image = functional.conv2d(
            image, weight, self.depthwise_conv.bias, padding=(0, side), groups=weight.shape[0]
        )
        if isinstance(self.norm, nn.BatchNorm1d):
            frames = self.norm(image.squeeze(2)).transpose(1, 2)
        else:
            frames = self.norm(image.squeeze(2).transpose(1, 2))
        return _pointwise(self.pointwise_conv2, self._activation(frames))


def _pointwise(conv: nn.Conv1d, x: Tensor) -> Tensor:
    """A convolution of width 1 over frames (B, T, D) is a linear layer."""
    return functional.linear(x, conv.weight.squeeze(-1), conv.bias)
