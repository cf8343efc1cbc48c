"""Silero VAD: how likely each 32 ms of a stretch of audio hold speech.

The model comes with the package `silero-vad` and runs in ONNX Runtime, one window at a time with
one thread, so a stretch gives the same figures however it comes and whatever else is going on.
They are floats: another build of the runtime, or another kind of processor, may round otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oasr.audio.resample import Resampler

Int16Array = npt.NDArray[np.int16]
Float32Array = npt.NDArray[np.float32]

WINDOW_MS: Final = 32
_CONTEXT_MS: Final = 4  # of the window before, which the model wants to hear again
_RATES: Final = (8_000, 16_000)
_MODEL: Final = "data/silero_vad.onnx"
_ERRORS_ONLY: Final = 3


_ROWS: Final = 8  # pieces that are heard side by side: more are no faster
_PIECE: Final = 625  # windows of a piece
_BEFORE: Final = 156  # windows heard before it


def is_installed() -> bool:
    """Whether the packages of the extra `vad` are there."""
    return find_spec("onnxruntime") is not None and find_spec("silero_vad") is not None


class VoiceActivity:
    """Speech probabilities of one stretch of one channel, whose windows begin at its start."""

    def __init__(self, rate: int) -> None:
        """Begin a stretch of `rate` samples per second; ImportError without the extra `vad`."""
        self._run = _session().run
        model_rate = _RATES[0] if rate < _RATES[1] else _RATES[1]
        self._resampler = None if rate == model_rate else Resampler(rate, model_rate)
        self._rate = np.array(model_rate, dtype=np.int64)
        self._window_samples = WINDOW_MS * model_rate // 1000
        self._context = np.zeros(_CONTEXT_MS * model_rate // 1000, np.float32)
        self._state = np.zeros((2, 1, 128), np.float32)
        self._pending = np.zeros(0, np.float32)

    def push(self, samples: Int16Array) -> list[float]:
        """Hear the next samples; returns the probabilities of the windows that they complete.

        At rates other than 8 and 16 kHz, when a window is complete depends on the sizes of the
        pieces: give pieces of equal length. What its probability is does not.
        """
        pending = np.concatenate((self._pending, self._scaled(samples)))
        found = []
        while len(pending) >= self._window_samples:
            window, pending = pending[: self._window_samples], pending[self._window_samples :]
            probability, self._state = self._judge(window)
            self._context = window[-len(self._context) :]
            found.append(probability)
        self._pending = pending
        return found

    def peek(self) -> float:
        """The probability of what no complete window holds yet, as if silence followed."""
        window = np.zeros(self._window_samples, np.float32)
        window[: len(self._pending)] = self._pending
        return self._judge(window)[0]

    def _scaled(self, samples: Int16Array) -> Float32Array:
        if self._resampler is not None:
            return self._resampler.push(samples)
        return samples.astype(np.float32) * np.float32(1 / 32768)

    def _judge(self, window: Float32Array) -> tuple[float, Float32Array]:
        heard = np.concatenate((self._context, window))[np.newaxis]
        output, state = self._run(None, {"input": heard, "state": self._state, "sr": self._rate})
        return float(output[0, 0]), state


def heard_together(stretches: Sequence[Float32Array]) -> list[Float32Array]:
    """The probabilities of the windows of whole stretches at 16 kHz in [−1, 1), of any lengths.

    Nearly what `push` and `peek` give, in half the time: pieces of 20 s are heard side by side,
    each after the 5 s before it. The model remembers for longer, which moves the probability of
    some windows near a change; what a stretch gets depends on its own samples alone.
    """
    size = WINDOW_MS * _RATES[1] // 1000
    found = [np.zeros(len(stretch) // size + 1, np.float32) for stretch in stretches]
    pieces = [(i, at) for i, row in enumerate(found) for at in range(0, len(row), _PIECE)]
    pieces.sort(key=lambda piece: piece[1] + _PIECE < len(found[piece[0]]), reverse=True)
    for first in range(0, len(pieces), _ROWS):
        rows = []
        for i, at in pieces[first : first + _ROWS]:
            last = min(at + _PIECE, len(found[i]))
            begin = max(0, at - _BEFORE)
            rows.append((i, at, last, stretches[i][begin * size : last * size], last - begin))
        rows.sort(key=lambda row: row[-1], reverse=True)
        heard = _side_by_side([audio for *_, audio, _ in rows], [count for *_, count in rows])
        for (i, at, last, _, _), probabilities in zip(rows, heard, strict=True):
            found[i][at:last] = probabilities[at - last :]
    return found


def _side_by_side(stretches: Sequence[Float32Array], counts: Sequence[int]) -> list[Float32Array]:
    """The first `counts` windows of stretches, of which none has more than the one before."""
    rate, size = _RATES[1], WINDOW_MS * _RATES[1] // 1000
    context = _CONTEXT_MS * rate // 1000
    audio = np.zeros((len(stretches), context + counts[0] * size), np.float32)
    for row, stretch in zip(audio, stretches, strict=True):
        row[context : context + len(stretch)] = stretch
    found = np.zeros((len(stretches), counts[0]), np.float32)
    state = np.zeros((2, len(stretches), 128), np.float32)
    named_rate = np.array(rate, dtype=np.int64)
    for at in range(counts[0]):
        rows = sum(count > at for count in counts)
        heard = audio[:rows, at * size : (at + 1) * size + context]
        inputs = {"input": heard, "state": state[:, :rows], "sr": named_rate}
        output, state = _session().run(None, inputs)
        found[:rows, at] = output[:, 0]
    return [row[:count] for row, count in zip(found, counts, strict=True)]


@cache
def _session() -> Any:
    import onnxruntime

    # Importing the package itself would set the number of torch's threads.
    found = find_spec("silero_vad")
    if found is None or not found.submodule_search_locations:
        raise ImportError("the package silero-vad is not installed")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(
        str(Path(found.submodule_search_locations[0]) / _MODEL),
        options,
        providers=["CPUExecutionProvider"],
    )
