"""Tensors on their way out of the device's memory."""

from __future__ import annotations

import torch
from torch import Tensor


def to_host(values: Tensor) -> Tensor:
    """`values`, a copy that nobody else holds, in host memory.

    From a CUDA device it goes to pinned memory and the call does not wait: work on the same CUDA
    stream, such as bringing it back, comes after it.
    """
    if not values.is_cuda:
        return values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)
