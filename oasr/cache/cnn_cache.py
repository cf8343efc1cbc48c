"""Convolution history of the running streams, one slot each."""

from __future__ import annotations

import torch
from torch import Tensor

from oasr.cache.host_copy import to_host


class CnnCache:
    """The last `frames` inputs of every layer's convolution module, by slot."""

    def __init__(
        self,
        num_layers: int,
        channels: int,
        frames: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        # (layers, slots, channels, frames)
        self._states = torch.zeros(num_layers, 0, channels, frames, device=device, dtype=dtype)

    def enlarge(self, num_slots: int) -> None:
        """Makes the slots 0 … num_slots − 1 usable; the others keep what they have."""
        layers, slots, channels, frames = self._states.shape
        if num_slots > slots:
            added = self._states.new_zeros(layers, num_slots - slots, channels, frames)
            self._states = torch.cat([self._states, added], dim=1)

    def open(self, slot: int) -> None:
        """Gives the slot the history of silence that a stream starts with: zeros."""
        self._states[:, slot].zero_()

    def save(self, slot: int) -> Tensor:
        """The history of `slot`, (layers, channels, frames) in host memory."""
        return to_host(self._states[:, slot].clone())

    def restore(self, slot: int, saved: Tensor) -> None:
        """Goes on in `slot`, which has been opened, where `save` left off."""
        self._states[:, slot].copy_(saved, non_blocking=True)

    def gather(self, slots: Tensor) -> Tensor:
        """(layers, B, channels, frames) of `slots` (B,) int64, a copy."""
        return self._states.index_select(1, slots)

    def scatter(self, slots: Tensor, states: Tensor) -> None:
        """Stores `states` (layers, B, channels, frames) as the history of `slots`."""
        self._states.index_copy_(1, slots, states.to(self._states.dtype))
