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
from oasr.decoding.options import DecodingOptions
from oasr.engine.config import EngineConfig
from oasr.engine.family import Capabilities, NoStreams, check_capabilities
from oasr.engine.isolation import ErrorStage, failed_output, run_alone, run_isolated
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.engine.whisper_utterance import WhisperUtterance
from oasr.engine.whisper_windows import Heard, Window, WindowReader
from oasr.errors import ModelError, OptionError
from oasr.features.log_mel import HOP_SAMPLES, RATE, WINDOW_FRAMES, WINDOW_SAMPLES
from oasr.models.registry import ModelInfo, file_digest, read_card
from oasr.models.whisper.model import WhisperModel, compute_type

LANGUAGES: Final = ("en",)


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
        self.info = ModelInfo(name, digest, config.device, config.dtype, languages or LANGUAGES)
        self.streams = NoStreams(name)
        self.capabilities = Capabilities(
            streaming=False,
            searches=("prefix_beam", "greedy"),
            usual_beam=5,
            alternatives=False,
            hotwords=False,
        )

    def check_decoding(self, decoding: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what the model cannot do."""
        check_capabilities(self.capabilities, decoding)

    @property
    def portable_check(self) -> Callable[[DecodingOptions], None]:
        """`check_decoding` without the weights."""
        return partial(check_capabilities, self.capabilities)

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
        open_ones: list[WhisperUtterance] = []
        with record_function("features"):
            for request in batch:
                utterance = run_alone(ErrorStage.INPUT, self._opened, request)
                if utterance is None:
                    found[request.request_id] = failed_output(request, ErrorStage.INPUT)
                else:
                    open_ones.append(utterance)
        started_s = time.perf_counter()
        while going := [u for u in open_ones if not u.is_read]:
            samples = sum(min(len(u.rest), WINDOW_SAMPLES) for u in going)
            with record_function("forward"):
                self._round(going)
            stats.forwards += 1
            stats.offline_frames += samples // HOP_SAMPLES
            stats.offline_padded_frames += WINDOW_FRAMES * len(going)
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

    def _opened(self, request: Request) -> WhisperUtterance:
        audio = request.audio
        assert audio is not None  # a whole utterance has its audio from the start
        if not np.isfinite(audio).all():
            raise ValueError("samples that are no numbers")
        return WhisperUtterance(request, audio, self._tokens)

    def _round(self, going: Sequence[WhisperUtterance]) -> None:
        """The next window of each; those of equal beams share a batch."""
        groups: defaultdict[int, list[WhisperUtterance]] = defaultdict(list)
        for utterance in going:
            groups[utterance.beam].append(utterance)
        for beam, group in groups.items():
            windows = [
                Window(u.rest[:WINDOW_SAMPLES], beam, u.request.decoding.word_times) for u in group
            ]
            heard: list[Heard | None] = run_isolated(ErrorStage.FORWARD, self._reader.read, windows)
            for utterance, said in zip(group, heard, strict=True):
                utterance.hear(said)
