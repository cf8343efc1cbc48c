"""Kaldi log mel filterbank features, batched on any device.

One frame is 25 ms of audio and begins 10 ms after the one before (snip_edges: only whole
frames count). DC removal, pre-emphasis and window act within a frame, so that a frame's
features depend on its own 400 samples alone: streaming and offline features are the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SAMPLE_RATE = 16_000
FRAME_SAMPLES = 400
SHIFT_SAMPLES = 160
PREEMPHASIS = 0.97
LOW_HZ = 20.0
FFT_SIZE = 512
PCM_SCALE = 32_768.0
ROWS_PER_PRODUCT = 64


def num_frames(samples: int) -> int:
    """How many whole 25 ms frames `samples` samples at 16 kHz hold."""
    return 0 if samples < FRAME_SAMPLES else 1 + (samples - FRAME_SAMPLES) // SHIFT_SAMPLES


def povey_window() -> Tensor:
    """Kaldi's default window, a Hann window to the power of 0.85: (400,)."""
    return torch.hann_window(FRAME_SAMPLES, periodic=False).pow(0.85)


def mel_filters(num_mel_bins: int) -> Tensor:
    """Triangles that are linear in mel from 20 Hz to 8 kHz: (FFT_SIZE // 2 + 1, num_mel_bins).

    Single precision throughout, as Kaldi has it: near the corners of the triangles its
    rounding is visible in the features.
    """
    low, high = (1127.0 * math.log1p(hz / 700.0) for hz in (LOW_HZ, SAMPLE_RATE / 2))
    width = (high - low) / (num_mel_bins + 1)
    index = torch.arange(num_mel_bins)
    left, centre, right = (low + (index + corner) * width for corner in range(3))
    hz = torch.arange(FFT_SIZE // 2 + 1) * (SAMPLE_RATE / FFT_SIZE)
    mel = (1127.0 * (1.0 + hz / 700.0).log()).unsqueeze(1)
    filters = torch.minimum((mel - left) / (centre - left), (right - mel) / (right - centre))
    filters[-1] = 0.0  # Kaldi leaves the Nyquist bin out
    return filters.clamp_min(0.0)


class Fbank(nn.Module):
    """Log mel features of waves in [-1, 1), as `compute-fbank-feats` gives them without dither."""

    window: Tensor
    filters: Tensor

    def __init__(self, num_mel_bins: int = 80) -> None:
        super().__init__()
        self.register_buffer("window", povey_window(), persistent=False)
        self.register_buffer("filters", mel_filters(num_mel_bins), persistent=False)

    def forward(self, waves: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, T, num_mel_bins) and their frame counts (B,) of waves (B, N).

        `lengths` (B,) are the valid samples of each row. T is the number of frames that N
        samples hold; frames at or past a row's own count are zero.
        """
        counts = ((lengths - FRAME_SAMPLES) // SHIFT_SAMPLES + 1).clamp_min(0)
        total = num_frames(waves.shape[1])
        if total == 0:
            return waves.new_zeros(waves.shape[0], 0, self.filters.shape[1]), counts
        frames = (waves * PCM_SCALE).unfold(1, FRAME_SAMPLES, SHIFT_SAMPLES)
        feats = self._log_mel(frames)
        frame_index = torch.arange(total, device=counts.device)
        past_end = (frame_index >= counts[:, None]).to(feats.device)
        return feats.masked_fill_(past_end.unsqueeze(-1), 0.0), counts

    def _log_mel(self, frames: Tensor) -> Tensor:
        # Two roundings in the pre-emphasis, like the reference: low bins cancel so far that
        # a fused multiply-add shows in the fourth decimal.
        frames = frames - frames.mean(dim=-1, keepdim=True)
        scaled = frames * PREEMPHASIS
        padded = frames.new_zeros(*frames.shape[:-1], FFT_SIZE)
        windowed = padded[..., :FRAME_SAMPLES]
        torch.sub(frames[..., 1:], scaled[..., :-1], out=windowed[..., 1:])
        torch.sub(frames[..., 0], scaled[..., 0], out=windowed[..., 0])
        windowed.mul_(self.window)
        spectrum = torch.fft.rfft(padded)
        power = spectrum.real.square() + spectrum.imag.square()
        energies = self._filter(power.flatten(0, 1)).view(*power.shape[:2], -1)
        return energies.clamp_min_(torch.finfo(torch.float32).eps).log_()

    def _filter(self, power: Tensor) -> Tensor:
        """Mel energies (rows, num_mel_bins) of power spectra (rows, bins).

        BLAS picks its kernel by the shape, and kernels round differently: products of one
        shape keep a frame's bits independent of how many frames are computed with it.
        """
        if power.is_cuda:
            return power @ self.filters  # one launch; nothing promises bits there
        rows = power.shape[0]
        power = nn.functional.pad(power, (0, 0, 0, -rows % ROWS_PER_PRODUCT))
        products = [block @ self.filters for block in torch.split(power, ROWS_PER_PRODUCT)]
        return torch.cat(products)[:rows]
