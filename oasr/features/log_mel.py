"""The log-mel spectrogram of Whisper: windows of 30 s, whatever is in them.

Published as: power of a 400-sample Hann STFT every 160 samples, edges reflected, the last frame
left out; Slaney's mel filters; log10 with a floor of 1e-10; nothing more than 8 below the highest
value of the window; then (x + 4) / 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
import torchaudio
from numpy.typing import NDArray
from torch import Tensor

RATE: Final = 16_000
WINDOW_SAMPLES: Final = 30 * RATE
HOP_SAMPLES: Final = 160
WINDOW_FRAMES: Final = WINDOW_SAMPLES // HOP_SAMPLES
_FFT_SAMPLES: Final = 400
_FLOOR: Final = 1e-10
_RANGE: Final = 8.0


class LogMel:
    """Features of audio at 16 kHz in [−1, 1)."""

    def __init__(self, num_mel_bins: int) -> None:
        self._window = torch.hann_window(_FFT_SAMPLES)
        self._filters = torchaudio.functional.melscale_fbanks(
            _FFT_SAMPLES // 2 + 1, 0.0, RATE / 2, num_mel_bins, RATE, "slaney", "slaney"
        )

    def __call__(self, pieces: Sequence[NDArray[np.float32]]) -> Tensor:
        """(B, mel, 3000) of pieces of at most 30 s; silence follows the shorter ones.

        Each row depends on its own piece alone.
        """
        audio = torch.zeros(len(pieces), WINDOW_SAMPLES)
        for row, piece in zip(audio, pieces, strict=True):
            if len(piece) > WINDOW_SAMPLES:
                raise ValueError(f"a window has {WINDOW_SAMPLES} samples, not {len(piece)}")
            row[: len(piece)] = torch.from_numpy(piece)
        spectrum = torch.stft(
            audio, _FFT_SAMPLES, HOP_SAMPLES, window=self._window, return_complex=True
        )
        power = spectrum[..., :-1].abs().square()
        mel = (power.transpose(1, 2) @ self._filters).transpose(1, 2)
        found = mel.clamp(min=_FLOOR).log10()
        highest = found.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(found, highest - _RANGE) + 4.0) / 4.0
