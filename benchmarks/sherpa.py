"""sherpa-onnx as the streaming benchmarks drive it; needs nothing of this project."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from load import SAMPLE_RATE, Samples


class Sherpa:
    """`load.Recognizer` over sherpa-onnx's `OnlineRecognizer`."""

    def __init__(self, recognizer: Any) -> None:
        self._recognizer = recognizer
        self._streams: list[Any] = []

    def open(self, streams: int) -> None:
        self._streams = [self._recognizer.create_stream() for _ in range(streams)]

    def feed(self, stream: int, samples: Samples, is_last: bool) -> None:
        self._streams[stream].accept_waveform(SAMPLE_RATE, samples)
        if is_last:
            self._streams[stream].input_finished()

    def decode(self) -> bool:
        ready = [stream for stream in self._streams if self._recognizer.is_ready(stream)]
        if ready:
            self._recognizer.decode_streams(ready)
        return bool(ready)


def make_recognizer(options: argparse.Namespace) -> Sherpa:
    try:
        import sherpa_onnx
    except ImportError:
        sys.exit(
            "sherpa-onnx is not installed here: pip install sherpa-onnx==2.0.1, or name a --python"
        )
    if options.export is None:
        sys.exit("--export: the folder with model-streaming.onnx and tokens.txt is needed")
    return Sherpa(
        sherpa_onnx.OnlineRecognizer.from_wenet_ctc(
            tokens=str(options.export / "tokens.txt"),
            model=str(options.export / "model-streaming.onnx"),
            chunk_size=options.chunk_size,
            num_left_chunks=options.left_chunks,
            num_threads=options.threads,
        )
    )
