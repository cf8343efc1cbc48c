"""WeNet conformers as the engine sees them: streams and whole utterances through one encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from oasr.decoding.hotwords import can_spell
from oasr.decoding.options import DecodingOptions
from oasr.decoding.tokenizer import Tokenizer
from oasr.engine.config import EngineConfig
from oasr.engine.family import Capabilities, check_capabilities
from oasr.engine.input_processor import InputProcessor
from oasr.engine.model_runner import ModelRunner
from oasr.engine.offline import OfflineExecutor
from oasr.engine.output_processor import OutputProcessor
from oasr.engine.request import Request, RequestOutput
from oasr.engine.stats import StepStats
from oasr.engine.stream_context import StreamContext
from oasr.engine.streaming import StreamingExecutor
from oasr.errors import OptionError
from oasr.models.conformer.settings import ModelSettings
from oasr.models.registry import LoadedModel


class ConformerStreams:
    """Live audio in windows, with caches."""

    def __init__(
        self,
        runner: ModelRunner,
        executor: StreamingExecutor,
        settings: ModelSettings,
        chunk_size: int,
    ) -> None:
        self.executor = executor
        self._runner = runner
        self._settings = settings
        self._chunk_size = chunk_size

    def check(self) -> None:
        """OptionError where the model cannot stream, or not in chunks of `chunk_size`."""
        self._settings.check_streaming(self._chunk_size)

    def open(self, request: Request) -> None:
        """Give an admitted stream its decode state; its first window makes the caches."""
        self._runner.allocate_stream(request)

    def close(self, request: Request) -> None:
        """Take the caches of an ended stream back."""
        self._runner.free_stream(request)

    def has_work(self, request: Request) -> bool:
        """True when a step would decode a window of the stream, or end it."""
        return self.executor.has_work(request)

    def run(self, running: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """Decode the windows that are there."""
        return self.executor.run(running, stats)

    def decoded_samples(self, request: Request) -> int:
        """The real samples in the windows that were decoded."""
        context: StreamContext = request.stream_context
        return context.decoded_samples(self._runner.geometry)

    def undecoded_samples(self, request: Request) -> int:
        """The real samples that no decoded window holds."""
        context: StreamContext = request.stream_context
        return context.real_samples - context.decoded_samples(self._runner.geometry)

    def measure(self, stats: StepStats) -> None:
        """Write down how full the pool is, and what lies beside it."""
        kv = self._runner.kv
        stats.kv_blocks, stats.kv_blocks_used = kv.pool.num_blocks, kv.pool.num_used
        stats.kv_block_bytes = kv.nbytes // kv.pool.num_blocks
        stats.parked_bytes = self._runner.caches.parked_bytes


class ConformerFamily:
    """One loaded conformer."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self._settings = settings = loaded.settings
        self._offline_chunk_size = config.offline_chunk_size
        self._tokenizer = loaded.tokenizer
        self.info = loaded.info
        self.runner = ModelRunner(loaded, config)
        self.outputs = OutputProcessor(loaded.tokenizer, self.runner.geometry)
        inputs = InputProcessor(settings.num_mel_bins, torch.device(config.device))
        self.offline = OfflineExecutor(self.runner, inputs, self.outputs)
        executor = StreamingExecutor(self.runner, inputs, self.outputs, config.max_chunks_per_step)
        self.streams = ConformerStreams(self.runner, executor, settings, config.chunk_size)
        rescores = bool(loaded.decoder_weights)
        self.capabilities = Capabilities(
            streaming=self._can_stream(),
            searches=("greedy", "prefix_beam", "rescoring")
            if rescores
            else ("greedy", "prefix_beam"),
            languages=loaded.info.languages,
        )

    def check_decoding(self, decoding: DecodingOptions) -> None:
        """OptionError, whose code is the option's name, for what the model cannot do."""
        self.runner.search.check(decoding)
        self.capabilities.check(decoding)

    @property
    def portable_check(self) -> Callable[[DecodingOptions], None]:
        """`check_decoding` without the weights."""
        return partial(_check, self.capabilities, self._tokenizer)

    def check_utterance(self, request: Request) -> None:
        """OptionError for another sample rate, or where `offline_chunk_size` is not possible."""
        if self._offline_chunk_size > 0:
            self._settings.check_chunk_size(self._offline_chunk_size)
        if request.sample_rate != self._settings.sample_rate:
            raise OptionError("sample_rate", f"audio must come at {self._settings.sample_rate} Hz")

    def cost_frames(self, request: Request) -> int:
        """The frames of its audio."""
        return request.num_frames

    def decode(self, batch: Sequence[Request], stats: StepStats) -> list[RequestOutput]:
        """One forward and the searches of a batch."""
        return self.offline.run(batch, stats)

    def _can_stream(self) -> bool:
        try:
            self.streams.check()
        except OptionError:
            return False
        return True


def _check(capabilities: Capabilities, tokenizer: Tokenizer, decoding: DecodingOptions) -> None:
    check_capabilities(capabilities, decoding)
    for hotword in decoding.hotwords:
        if not can_spell(hotword.phrase, tokenizer):
            raise OptionError("hotwords", f"hotwords: no tokens can write {hotword.phrase!r}")
