"""Hours of speech whose every word is known: the bundled test lists, joined."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from oasr.audio.segmenter import Audio, Cut, EndReason, Opened, Segmenter, SegmenterConfig
from oasr.engine.engine import ASREngine

RATE = 16_000
LISTS = Path(__file__).parents[2] / "tests/data/testsets"
FRAME_SAMPLES = RATE // 100
AUDIBLE_RATIO = 0.02  # of a file's loudest frame: quieter frames at its ends are no speech

Int16Array = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One spoken text, without silence before and after it."""

    text: str
    samples: Int16Array


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an utterance lies in a channel; samples."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The audio of one segment; `keep_samples` of it are its own, None: all."""

    start: int
    cut: int
    samples: Int16Array
    keep_samples: int | None
    reason: EndReason


@cache
def utterances() -> tuple[Utterance, ...]:
    """All utterances of the bundled lists."""
    found = []
    for name in ("human_digits", "phrases"):
        entries = json.loads((LISTS / name / "reference.json").read_text(encoding="utf-8"))
        for entry in entries:
            samples, rate = soundfile.read(LISTS / name / entry["file"], dtype="int16")
            assert rate == RATE
            found.append(Utterance(entry["text"], _trimmed(samples)))
    return tuple(found)


def _trimmed(samples: Int16Array) -> Int16Array:
    whole = len(samples) // FRAME_SAMPLES * FRAME_SAMPLES
    levels = samples[:whole].reshape(-1, FRAME_SAMPLES).astype(float).std(axis=1)
    audible = np.flatnonzero(levels > AUDIBLE_RATIO * levels.max())
    return samples[audible[0] * FRAME_SAMPLES : (audible[-1] + 1) * FRAME_SAMPLES]


def joined(
    seconds: float, pauses_s: tuple[float, float], noise_dbfs: float, seed: int = 0
) -> tuple[Int16Array, list[Placed]]:
    """A channel of utterances in random order with pauses between, over white noise."""
    rng = np.random.default_rng(seed)
    total = round(seconds * RATE)
    channel = rng.normal(scale=32768 * 10 ** (noise_dbfs / 20), size=total).astype(np.float32)
    placed: list[Placed] = []
    at = RATE
    while True:
        for index in rng.permutation(len(utterances())):
            utterance = utterances()[int(index)]
            end = at + len(utterance.samples)
            if end + RATE > total:
                return np.clip(np.rint(channel), -32768, 32767).astype(np.int16), placed
            channel[at:end] += utterance.samples
            placed.append(Placed(at, end, utterance.text))
            at = end + round(float(rng.uniform(*pauses_s)) * RATE)


def pieces(samples: Int16Array, config: SegmenterConfig) -> Iterator[Piece]:
    """The segments of a channel, as the worker cuts them."""
    segmenter = Segmenter(RATE, 0, config)
    audio: list[Int16Array] = []
    for begin in range(0, len(samples), RATE):
        events = list(segmenter.feed(samples[begin : begin + RATE]))
        if begin + RATE >= len(samples):
            events += segmenter.cut_at_end(EndReason.END)
        for event in events:
            if isinstance(event, Opened):
                audio = []
            elif isinstance(event, Audio):
                audio.append(event.samples)
            elif event.start_sample is not None:
                yield _piece(event, event.start_sample, audio)


def _piece(cut: Cut, start: int, audio: Sequence[Int16Array]) -> Piece:
    keep = cut.sample - start if cut.reason is EndReason.MAX_LENGTH else None
    return Piece(start, cut.sample, np.concatenate(audio), keep, cut.reason)


def decoded(engine: ASREngine, parts: Iterable[tuple[Int16Array, int | None]]) -> list[str]:
    """What a streaming engine makes of pieces of audio, each a stream of its own."""
    texts: dict[str, str] = {}
    names: list[str] = []
    for samples, keep_samples in parts:
        name = engine.add_streaming_request()
        names.append(name)
        audio = samples.astype(np.float32) / 32768
        engine.feed_chunk(name, audio, is_last=True, keep_samples=keep_samples)
        if len(names) % engine.config.max_batch_size == 0:
            texts.update(_finals(engine))
    texts.update(_finals(engine))
    return [texts[name] for name in names]


def _finals(engine: ASREngine) -> dict[str, str]:
    outputs = [output for output in engine.run() if output.finished]
    assert all(output.finish_reason == "stop" for output in outputs)
    return {output.request_id: output.text for output in outputs}


Pair = tuple[int | None, int | None]


def aligned(reference: Sequence[str], heard: Sequence[str]) -> list[Pair]:
    """Pairs of indices with the fewest edits; words missing at the reference's ends are free."""
    rows, columns = len(reference) + 1, len(heard) + 1
    cost = np.zeros((rows, columns), dtype=np.int64)
    cost[0] = np.arange(columns)
    for i in range(1, rows):
        for j in range(1, columns):
            missing = 0 if j == columns - 1 else 1
            cost[i, j] = min(
                cost[i - 1, j - 1] + (reference[i - 1] != heard[j - 1]),
                cost[i - 1, j] + missing,
                cost[i, j - 1] + 1,
            )
    pairs: list[Pair] = []
    i, j = rows - 1, columns - 1
    while i or j:
        missing = 0 if j in (0, columns - 1) else 1
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (reference[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif i and cost[i, j] == cost[i - 1, j] + missing:
            i -= 1
            pairs.append((i, None))
        else:
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]
