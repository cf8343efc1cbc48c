"""The test lists of the bundled model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor

from oasr.features.fbank import Fbank

LISTS = Path(__file__).parents[1] / "data" / "testsets"
WORDS = {"human_digits": 422, "phrases": 618}
FILES_PER_BATCH = 20


class FeatureBatch(NamedTuple):
    texts: list[str]
    features: Tensor  # (B, T, mel)
    frames: Tensor  # (B,)


def read_list(name: str) -> list[tuple[NDArray[np.float32], str]]:
    """The samples at 16 kHz and the text of each file of a list."""
    entries = json.loads((LISTS / name / "reference.json").read_text(encoding="utf-8"))
    return [
        (soundfile.read(LISTS / name / e["file"], dtype="float32")[0], e["text"]) for e in entries
    ]


def feature_batches(name: str) -> list[FeatureBatch]:
    """The features of a list, files of like lengths together."""
    files = sorted(read_list(name), key=lambda file: len(file[0]))
    fbank, batches = Fbank(), []
    for first in range(0, len(files), FILES_PER_BATCH):
        waves, texts = zip(*files[first : first + FILES_PER_BATCH], strict=True)
        lengths = torch.tensor([len(wave) for wave in waves])
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(wave) for wave in waves], batch_first=True
        )
        batches.append(FeatureBatch(list(texts), *fbank(padded, lengths)))
    return batches
