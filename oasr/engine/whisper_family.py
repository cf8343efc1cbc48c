"""Whisper as the engine sees it: whole utterances, read in windows of at most 30 s."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch.profiler import record_function

from oasr.audio import silero
from oasr.audio.voiced import find_voices
from oasr.decoding.options import DecodingOptions
from oasr.engine.config import EngineConfig
from oasr.engine.family import Capabilities, NoStreams, check_capabilities
from oasr.engine.isolation import ErrorStage, failed_output, run_alone, run_isolated
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.engine.whisper_part import WhisperPart
from oasr.engine.whisper_utterance import WhisperUtterance, manner_of
from oasr.engine.whisper_windows import Heard, Manner, Samples, Window, WindowReader
from oasr.errors import ModelError, OptionError
from oasr.features.log_mel import HOP_SAMPLES, RATE, WINDOW_FRAMES, WINDOW_SAMPLES
from oasr.models.registry import ModelInfo, file_digest, read_card
from oasr.models.whisper.model import WhisperModel, compute_type
from oasr.models.whisper.tokens import WhisperTokens

LANGUAGES: Final = ("en",)
MOST_WINDOWS: Final = 8  # of a forward: more are no faster, and hold more memory


class WhisperFamily:
    """One loaded Whisper model."""

    def __init__(self, directory: Path, config: EngineConfig) -> None:
        """ModelError where it cannot be served, or a package of the extra `whisper` lacks."""
        if not silero.is_installed():
            raise ModelError(f"{directory.name} is a Whisper model: install the extra `whisper`")
        precision = compute_type(config.device, config.dtype)
        model = WhisperModel(directory, config.device, precision, torch.get_num_threads())
        self._tokens = model.tokens
        self._reader = WindowReader(model)
        name, languages = read_card(directory)
        digest = file_digest(directory / "model.bin")
        known = tuple(model.tokens.languages) if model.is_multilingual else LANGUAGES
        self.info = ModelInfo(name, digest, config.device, config.dtype, languages or known)
        self.streams = NoStreams(name)
        self.capabilities = Capabilities(
            streaming=False,
            searches=("prefix_beam", "greedy"),
            usual_beam=5,
            alternatives=False,
            stretches=True,
            languages=self.info.languages,
            detects_language=model.is_multilingual,
            translates=model.is_multilingual,
            prompts=True,
        )

    def check_decoding(self, decoding: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what the model cannot do."""
        self.portable_check(decoding)

    @property
    def portable_check(self) -> Callable[[DecodingOptions], None]:
        """`check_decoding` without the weights."""
        return partial(_check, self.capabilities, self._tokens)

    def check_utterance(self, request: Request) -> None:
        """OptionError for another sample rate."""
        if request.sample_rate != RATE:
            raise OptionError("sample_rate", f"audio must come at {RATE} Hz")

    def cost_frames(self, request: Request) -> int:
        """A window costs the same, whatever is in it."""
        audio = request.audio
        samples = 0 if audio is None else len(audio)
        return WINDOW_FRAMES * max(1, -(-samples // WINDOW_SAMPLES))

    def decode(self, batch: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """One terminal output for each, in the order of `batch`."""
        found: dict[str, RequestOutput] = {}
        with record_function("features"):
            open_ones = self._opened(batch)
        for request in batch:
            found[request.request_id] = failed_output(request, ErrorStage.INPUT)
        started_s = time.perf_counter()
        while round_ := _next_windows(open_ones):
            windows = [window for _, window in round_]
            with record_function("forward"):
                heard: list[Heard | None] = run_isolated(
                    ErrorStage.FORWARD, self._reader.read, windows
                )
            for (part, _), said in zip(round_, heard, strict=True):
                part.hear(said)
            stats.forwards += 1
            stats.offline_frames += sum(len(w.samples) for w in windows) // HOP_SAMPLES
            stats.offline_padded_frames += WINDOW_FRAMES * len(windows)
        stats.forward_s += time.perf_counter() - started_s
        stats.offline_requests += len(batch)
        for utterance in open_ones:
            request = utterance.request
            stage, output = ErrorStage.FORWARD, None
            if not utterance.failed:
                stage = ErrorStage.DECODE
                output = run_alone(stage, WhisperUtterance.output, utterance)
            found[request.request_id] = output or failed_output(request, stage)
        return [found[request.request_id] for request in batch]

    def _opened(self, batch: Sequence[Request]) -> list[WhisperUtterance]:
        """Those whose samples are numbers."""
        whole = [r for r in batch if run_alone(ErrorStage.INPUT, _check_samples, r) is not None]
        # What lies beyond `keep_samples` is not read: the next utterance has it, too.
        audio = [_audio(request)[: request.keep_samples] for request in whole]
        return [
            WhisperUtterance(request, samples, voice, self._tokens)
            for request, samples, voice in zip(whole, audio, find_voices(audio), strict=True)
        ]


def _check(capabilities: Capabilities, tokens: WhisperTokens, decoding: DecodingOptions) -> None:
    check_capabilities(capabilities, decoding)
    manner_of(decoding, tokens)


def _audio(request: Request) -> Samples:
    audio = request.audio
    assert audio is not None  # a whole utterance has its audio from the start
    return audio


def _check_samples(request: Request) -> bool:
    if not np.isfinite(_audio(request)).all():
        raise ValueError("samples that are no numbers")
    return True


def _next_windows(open_ones: Sequence[WhisperUtterance]) -> list[tuple[WhisperPart, Window]]:
    """Windows that can share a batch, of whichever utterances; none: all is read."""
    groups: defaultdict[Manner, list[tuple[WhisperPart, Window]]] = defaultdict(list)
    for utterance in open_ones:
        for part in utterance.parts:
            if not (part.is_read or utterance.failed):
                word_times = utterance.request.decoding.word_times
                window = Window(part.rest[:WINDOW_SAMPLES], utterance.manner, word_times)
                groups[utterance.manner].append((part, window))
    largest = max(groups.values(), key=len, default=[])
    return largest[:MOST_WINDOWS]
