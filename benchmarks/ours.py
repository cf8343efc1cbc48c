"""The engine as the streaming benchmarks drive it."""

from __future__ import annotations

import argparse

import torch
from load import Samples

from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine


class Ours:
    """`load.Recognizer` over `ASREngine`."""

    def __init__(self, engine: ASREngine) -> None:
        self._engine = engine
        self._ids: list[str] = []

    def open(self, streams: int) -> None:
        self._ids = [self._engine.add_streaming_request() for _ in range(streams)]

    def feed(self, stream: int, samples: Samples, is_last: bool) -> None:
        self._engine.feed_chunk(self._ids[stream], samples, is_last)

    def decode(self) -> bool:
        if not self._engine.has_work:
            return False
        self._engine.step()
        return True


def make_recognizer(options: argparse.Namespace) -> Ours:
    torch.set_num_threads(options.threads)
    return Ours(
        ASREngine(
            EngineConfig(
                ckpt_dir=options.model,
                device=options.device,
                dtype=options.dtype,
                chunk_size=options.chunk_size,
                num_left_chunks=options.left_chunks,
                max_batch_size=options.streams,
            )
        )
    )
