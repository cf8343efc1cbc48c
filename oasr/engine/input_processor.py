"""Samples to features: every stream of a step, or every file of a batch, in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oasr.engine.isolation import ErrorStage, run_isolated
from oasr.features.fbank import SHIFT_SAMPLES, Fbank, num_frames
from oasr.features.framing import span_samples

Samples = NDArray[np.float32]

# A frame takes some 10 KB while its features are computed.
FRAMES_PER_CALL: Final = 16_384
# Frames that would mix the end of a block with the start of the next.
SEAM_FRAMES: Final = 2


class InputProcessor:
    """Turns blocks of samples of any lengths into features."""

    def __init__(self, num_mel_bins: int, device: torch.device) -> None:
        self._device = device
        self._fbank = Fbank(num_mel_bins).to(device)

    def extract(self, blocks: Sequence[Samples]) -> list[Tensor | None]:
        """Features (frames, mel) float32 on the device of each block (N,); None: it failed.

        A frame's features depend on its own samples alone, whatever is computed beside it.
        """
        return run_isolated(ErrorStage.FEATURES, self._extract, blocks)

    def _extract(self, blocks: Sequence[Samples]) -> list[Tensor]:
        found: list[list[Tensor]] = [[] for _ in blocks]
        for call in _calls(blocks):
            for (owner, _), features in zip(call, self._features(call), strict=True):
                found[owner].append(features)
        return [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in found]

    def _features(self, call: Sequence[tuple[int, Samples]]) -> list[Tensor]:
        """All pieces as one wave, each beginning at a frame, so that none pads another."""
        counts = [num_frames(len(piece)) for _, piece in call]
        starts = np.cumsum([0, *(count + SEAM_FRAMES for count in counts)])
        wave = np.zeros(starts[-1] * SHIFT_SAMPLES, dtype=np.float32)
        for start, count, (_, piece) in zip(starts, counts, call, strict=False):
            samples = span_samples(count)
            begin = start * SHIFT_SAMPLES
            wave[begin : begin + samples] = piece[:samples]
        waves = torch.from_numpy(wave).to(self._device)[None]
        features, _ = self._fbank(waves, torch.tensor([len(wave)], device=self._device))
        rows: Tensor = features[0]
        return [rows[s : s + n] for s, n in zip(starts.tolist(), counts, strict=False)]


def _calls(blocks: Sequence[Samples]) -> Iterator[list[tuple[int, Samples]]]:
    """The blocks, cut at frames where they are long, in groups of FRAMES_PER_CALL at most."""
    call: list[tuple[int, Samples]] = []
    frames_in_call = 0
    for owner, block in enumerate(blocks):
        total = num_frames(len(block))
        for first in range(0, max(total, 1), FRAMES_PER_CALL):
            frames = min(FRAMES_PER_CALL, total - first)
            if call and frames_in_call + frames > FRAMES_PER_CALL:
                yield call
                call, frames_in_call = [], 0
            begin = first * SHIFT_SAMPLES
            call.append((owner, block[begin : begin + span_samples(frames)]))
            frames_in_call += frames
    if call:
        yield call
