"""Reads a recording and cuts it at silence into windows for the engine.

Whoever reads (a thread, or a process that answers to one) hands windows over through a bounded
queue, so a long file costs no more memory than a short one. Reading touches neither Kafka nor the
engine.
"""

from __future__ import annotations

import logging
import queue
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from oasr.audio.containers import read_blocks
from oasr.audio.resample import Resampler
from oasr.audio.segmenter import Audio, Cut, EndReason, Opened, Segmenter, SegmenterConfig
from oasr.errors import AudioError
from worker.codec import CodecError, FileJob
from worker.errors import ErrorCode
from worker.file_source import FileLimits, open_source

logger = logging.getLogger(__name__)

MODEL_RATE = 16_000
WINDOW_MS = 30_000
QUEUE_WINDOWS = 8
_PUT_TIMEOUT_S = 0.2


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one channel: media samples [start, end), and the audio at the model's rate."""

    channel: int
    index: int  # among the windows of its channel
    start_sample: int
    end_sample: int
    audio: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Opening:
    """The file can be read; comes before its windows."""

    sample_rate: int
    channels: int


@dataclass(frozen=True, slots=True)
class Completed:
    """All windows were handed over."""

    duration_samples: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The file cannot be read on."""

    code: ErrorCode
    message: str


Item = Opening | Window | Completed | Failed


class Phase(Enum):
    """How far a reading is."""

    STARTING = auto()
    FETCHING = auto()  # finds the file and checks it against its claims
    DECODING = auto()


class Cancelled(Exception):
    """The loop does not want the rest."""


class Reading:
    """One file on its way: `read` runs in the pool, `take` in the loop."""

    def __init__(self, job: FileJob, limits: FileLimits, endpointing: SegmenterConfig) -> None:
        self.job = job
        self._limits = limits
        self._endpointing = window_config(endpointing)
        self._items: queue.Queue[Item] = queue.Queue(QUEUE_WINDOWS)
        self._cancelled = threading.Event()

    def take(self) -> Item | None:
        """The next item, None if there is none yet."""
        try:
            return self._items.get_nowait()
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Let the pool thread end soon."""
        self._cancelled.set()

    def read(self) -> None:
        """Hand over the file's opening, windows and completion, or its failure."""
        try:
            for item in self._read():
                self._put(item)
        except Cancelled:
            return
        except CodecError as error:
            self._put_last(Failed(error.code, error.message))
        except AudioError as error:
            self._put_last(Failed(ErrorCode.CONTAINER_INVALID, str(error)))
        except OSError as error:
            self._put_last(Failed(ErrorCode.FETCH_FAILED, f"the file: {error.strerror}"))
        except MemoryError:
            self._put_last(Failed(ErrorCode.DECODE_MEMORY, "decoding takes too much memory"))
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this file alone
            # Without its text: libraries quote addresses and contents.
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error(
                "a file could not be decoded: %s in %s, line %s",
                type(error).__name__,
                place.name,
                place.lineno,
            )
            self._put_last(Failed(ErrorCode.CONTAINER_INVALID, "the file could not be decoded"))

    def _read(self) -> Iterator[Item]:
        self._reached(Phase.FETCHING)
        with open_source(self.job, self._limits) as file:
            self._reached(Phase.DECODING)
            yield from self._decode(file)

    def _decode(self, file: BinaryIO) -> Iterator[Item]:
        info, blocks = read_blocks(file)
        most_frames = self._limits.max_duration_s * info.sample_rate
        self._check_length(info.frames or 0, most_frames)
        yield Opening(info.sample_rate, info.channels)
        cutters = [_Cutter(c, info.sample_rate, self._endpointing) for c in range(info.channels)]
        frames = 0
        for block in blocks:
            frames += len(block)
            self._check_length(frames, most_frames)
            self._reached(Phase.DECODING)
            for cutter in cutters:
                yield from cutter.feed(np.ascontiguousarray(block[:, cutter.channel]))
        for cutter in cutters:
            yield from cutter.finish()
        yield Completed(frames, tuple(info.warnings))

    def _check_length(self, frames: int, most_frames: int) -> None:
        if frames > most_frames:
            raise CodecError(
                ErrorCode.AUDIO_TOO_LONG, f"the file is longer than {self._limits.max_duration_s} s"
            )

    def _reached(self, phase: Phase) -> None:
        """Something was done; for a reading that somebody watches."""

    def _put(self, item: Item) -> None:
        while not self._cancelled.is_set():
            try:
                self._items.put(item, timeout=_PUT_TIMEOUT_S)
            except queue.Full:
                continue
            return
        raise Cancelled

    def _put_last(self, item: Item) -> None:
        try:
            self._put(item)
        except Cancelled:
            return


class _Cutter:
    """Collects one channel's audio into windows."""

    def __init__(self, channel: int, sample_rate: int, config: SegmenterConfig) -> None:
        self.channel = channel
        self._sample_rate = sample_rate
        self._segmenter = Segmenter(sample_rate, 0, config)
        self._parts: list[NDArray[np.int16]] = []
        self._count = 0

    def feed(self, samples: NDArray[np.int16]) -> Iterator[Window]:
        yield from self._windows(self._segmenter.feed(samples))

    def finish(self) -> Iterator[Window]:
        yield from self._windows(self._segmenter.cut_at_end(EndReason.WINDOW))

    def _windows(self, events: list[Opened | Audio | Cut]) -> Iterator[Window]:
        for event in events:
            if isinstance(event, Audio):
                self._parts.append(event.samples)
            elif isinstance(event, Cut) and event.start_sample is not None:
                yield self._window(event.start_sample, event.sample)

    def _window(self, start_sample: int, end_sample: int) -> Window:
        samples = np.concatenate(self._parts)[: end_sample - start_sample]
        self._parts = []
        resampler = Resampler(self._sample_rate, MODEL_RATE)
        audio = np.concatenate([resampler.push(samples), resampler.flush()])
        self._count += 1
        return Window(self.channel, self._count - 1, start_sample, end_sample, audio)


def window_config(endpointing: SegmenterConfig) -> SegmenterConfig:
    """Endpointing for files: windows of at most 30 s, to which the other times give way."""
    longest_ms = WINDOW_MS // 2
    return replace(
        endpointing,
        max_utterance_ms=WINDOW_MS,
        no_speech_ms=min(endpointing.no_speech_ms, longest_ms),
        quiet_search_ms=min(endpointing.quiet_search_ms, longest_ms),
        pre_roll_ms=min(endpointing.pre_roll_ms, longest_ms // 2),
    )
