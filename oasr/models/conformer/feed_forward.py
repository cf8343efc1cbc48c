"""Position-wise feed-forward module."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]

ACTIVATIONS: MappingProxyType[str, Activation] = MappingProxyType(
    {"swish": functional.silu, "relu": functional.relu, "gelu": functional.gelu}
)


class FeedForward(nn.Module):
    """Two linear layers with the activation between them."""

    def __init__(self, size: int, hidden_size: int, activation: str) -> None:
        super().__init__()
        self.w_1 = nn.Linear(size, hidden_size)
        self.w_2 = nn.Linear(hidden_size, size)
        self._activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        hidden: Tensor = self._activation(self.w_1(x))
        out: Tensor = self.w_2(hidden)
        return out
