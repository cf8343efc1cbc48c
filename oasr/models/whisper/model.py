"""A Whisper model that CTranslate2 runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oasr.errors import ModelError
from oasr.models.whisper.tokens import WhisperTokens

SAMPLES_OF_FALLBACK: Final = 5  # readings drawn at a temperature; the best counts
MAX_TOKENS: Final = 224  # of a window: half of the decoder's positions
_MOST_INITIAL_STEPS: Final = 50  # the first time of a window is at most one second
_MEDIAN_FRAMES: Final = 7
_SEED: Final = 20


Prompts = Sequence[Sequence[int]]


class Reading(NamedTuple):
    """What a window says: tokens with times, and how sure the model is."""

    tokens: tuple[int, ...]
    log_prob: float  # mean over the tokens and the end
    no_speech: float  # probability that nobody speaks


@dataclass(frozen=True, slots=True)
class Aligned:
    """Where text tokens begin, in steps of 20 ms, and the probability of each.

    `starts` has one step more than there are tokens: the end of the last one.
    """

    starts: NDArray[np.int64]
    probabilities: NDArray[np.float64]


class WhisperModel:
    """Encoder and decoder; one thread calls it."""

    def __init__(self, directory: Path, device: str, compute_type: str, threads: int) -> None:
        """ModelError where the directory holds no Whisper model that can be run."""
        try:
            import ctranslate2
        except ImportError as error:
            raise ModelError(
                f"{directory.name} is a Whisper model: install the extra `whisper`"
            ) from error
        self._library: Any = ctranslate2
        self._loading = (directory, device, compute_type, threads)
        kind, _, index = device.partition(":")
        try:
            self._model: Any = ctranslate2.models.Whisper(
                str(directory),
                device=kind,
                device_index=int(index or 0),
                compute_type=compute_type,
                intra_threads=threads,
                inter_threads=1,
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{directory.name} cannot be loaded: {error}") from error
        self.is_multilingual: bool = self._model.is_multilingual
        self.tokens = WhisperTokens(directory / "tokenizer.json")
        self.num_mel_bins: int = self._model.n_mels

    def encode(self, features: Tensor) -> Any:
        """What the decoder wants to see of windows (B, mel, 3000); stays on the device."""
        view = self._library.StorageView.from_array(np.ascontiguousarray(features.numpy()))
        return self._model.encode(view, to_cpu=False)

    def detect(self, encoded: Any) -> list[tuple[int, float]]:
        """The token of the language of each window, and its probability; multilingual models."""
        found = self._model.detect_language(encoded)
        return [(self.tokens.languages[name.strip("<|>")], sure) for (name, sure), *_ in found]

    def read(self, encoded: Any, prompts: Prompts, beam: int) -> list[Reading]:
        """The best reading of each window that a beam of that width finds; 1 is greedy.

        All prompts have the same length.
        """
        return self._generate(encoded, prompts, beam_size=beam, patience=1)

    def loaded_anew(self) -> WhisperModel:
        """The model once more, for `sample`: what this one draws depends on its first call alone.

        The library keeps its random numbers for as long as a model's threads live.
        """
        self._library.set_random_seed(_SEED)
        return WhisperModel(*self._loading)

    def sample(self, encoded: Any, prompt: Sequence[int], temperature: float) -> Reading:
        """The likeliest of some readings of one window drawn at a temperature."""
        return self._generate(
            encoded,
            [prompt],
            beam_size=1,
            num_hypotheses=SAMPLES_OF_FALLBACK,
            sampling_topk=0,
            sampling_temperature=temperature,
        )[0]

    def align(
        self,
        encoded: Any,
        start: Sequence[int],
        tokens: Sequence[Sequence[int]],
        frames: Sequence[int],
    ) -> list[Aligned]:
        """Where the text tokens of each window lie; `frames` of 10 ms have audio.

        `start` is the end of their prompts, from the start of the transcript on.
        """
        found = self._model.align(
            encoded,
            list(start),
            [list(row) for row in tokens],
            list(frames),
            median_filter_width=_MEDIAN_FRAMES,
        )
        return [
            Aligned(_starts(row.alignments), np.array(row.text_token_probs, np.float64))
            for row in found
        ]

    def _generate(self, encoded: Any, prompts: Prompts, **search: float) -> list[Reading]:
        results = self._model.generate(
            encoded,
            [list(prompt) for prompt in prompts],
            max_length=2 * MAX_TOKENS,  # the library halves it
            return_scores=True,
            return_no_speech_prob=True,
            suppress_blank=True,
            max_initial_timestamp_index=_MOST_INITIAL_STEPS,
            **search,
        )
        return [self._reading(result) for result in results]

    @staticmethod
    def _reading(result: Any) -> Reading:
        tokens = tuple(result.sequences_ids[0])
        # The score is the mean over the tokens; the end of the text belongs to the reading, too.
        log_prob = result.scores[0] * len(tokens) / (len(tokens) + 1)
        return Reading(tokens, log_prob, result.no_speech_prob)


def _starts(path: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The step at which a path through (token, step) first meets each token."""
    tokens, steps = np.array(path, np.int64).T
    found: NDArray[np.int64] = steps[np.diff(tokens, prepend=-1) > 0]
    return found


def is_whisper(directory: Path) -> bool:
    """Whether a directory holds a Whisper model in the format of CTranslate2."""
    names = ("model.bin", "config.json", "tokenizer.json")
    if not all((directory / name).is_file() for name in names):
        return False
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "alignment_heads" in config


def compute_type(device: str, dtype: str) -> str:
    """CTranslate2's name of a precision; ModelError where the device has none such."""
    known = {"cpu": ("float32", "int8"), "cuda": ("float32", "float16", "bfloat16", "int8")}
    kind = torch.device(device).type
    if dtype not in known.get(kind, ()):
        raise ModelError(f"dtype {dtype}: Whisper on {kind} has {', '.join(known.get(kind, ()))}")
    return "int8_float16" if (kind, dtype) == ("cuda", "int8") else dtype
