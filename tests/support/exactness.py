"""Audio of every kind, and streams fed in random pieces among others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch
from hypothesis import strategies as st
from torch import Tensor

from oasr.engine.engine import ASREngine
from oasr.engine.request import RequestOutput
from oasr.models.conformer.model import ConformerModel
from oasr.models.registry import LoadedModel
from tests.support.engine import Samples, make_engine, noise, stream_in_pieces

NEAR_TIE = 1e-3  # two best tokens nearer than this may change places with the batch's shape
LONGEST = 400_000  # 25 s

CLIPS = sorted((Path(__file__).parents[1] / "data" / "testsets").glob("*/*.flac"))

_PIECES = (1, 37, 320, 1_600, 10_240, 33_333, 160_000)


def silence(samples: int, seed: int) -> Samples:
    del seed
    return np.zeros(samples, dtype=np.float32)


def clicks(samples: int, seed: int) -> Samples:
    """Silence with single samples of full scale."""
    rng = np.random.default_rng(seed)
    audio = np.zeros(samples, dtype=np.float32)
    if samples:
        at = rng.integers(0, samples, 1 + samples // 4_000)
        audio[at] = rng.choice([-0.999, 0.999], len(at))
    return audio


def bursts(samples: int, seed: int) -> Samples:
    """Noise and digital silence in turn."""
    audio = noise(samples, seed)
    lengths = np.random.default_rng(seed).integers(200, 12_000, 1 + samples // 100)
    edges = np.cumsum(lengths)
    for begin, end in zip(edges[::2], edges[1::2], strict=False):
        audio[begin:end] = 0
    return audio


def utterances(longest: int = LONGEST) -> st.SearchStrategy[Samples]:
    """Audio of 0 samples to `longest`, with the lengths around windows among them."""
    lengths = st.one_of(
        st.sampled_from([0, 1, 399, 400, 1_199, 10_719, 10_720, 10_721, longest]),
        st.integers(0, longest // 8),
        st.integers(0, longest // 4),
    )
    kinds = st.sampled_from([noise, noise, bursts, clicks, silence])
    return st.builds(lambda kind, n, seed: kind(n, seed), kinds, lengths, st.integers(0, 9_999))


@st.composite
def spoken(draw: st.DrawFn) -> Samples:
    """Clips of the bundled lists with pauses, from a moment inside the first one on."""
    clips = draw(st.lists(st.sampled_from(CLIPS), min_size=1, max_size=3))
    parts: list[Samples] = []
    for clip in clips:
        parts.append(soundfile.read(clip, dtype="float32")[0])
        parts.append(np.zeros(draw(st.sampled_from([0, 800, 12_345])), dtype=np.float32))
    return np.concatenate(parts)[draw(st.integers(0, 9_999)) :]


@dataclass(frozen=True, slots=True)
class Expected:
    """What one utterance has to say in any company."""

    whole: RequestOutput  # the offline result under the chunk mask
    said: list[
        tuple[str, int, bool]
    ]  # text, decoded samples, finished: of the stream, in one piece
    ids: list[int]  # the best token of each frame
    scores: list[float]
    is_tied: bool  # two tokens were too near to each other in some frame

    def may_be_at(self, found: int, frame: int) -> bool:
        """Whether a token of `frame` may be found at `found`: a run peaks there just as high."""
        if found == frame:
            return True
        span = range(min(found, frame), max(found, frame) + 1)
        is_run = len({self.ids[at] for at in span}) == 1
        return is_run and abs(self.scores[found] - self.scores[frame]) < 1e-4


class _Watched:
    """A model whose posteriors are kept."""

    def __init__(self, model: ConformerModel) -> None:
        self._model = model
        self.log_probs = torch.zeros(0, 2)

    def encode_full(self, *arguments: Tensor, **mask: int) -> tuple[Tensor, Tensor]:
        return self._model.encode_full(*arguments, **mask)

    def ctc_log_probs(self, encoded: Tensor) -> Tensor:
        found = self._model.ctc_log_probs(encoded)
        self.log_probs = found[0]
        return found


def expect(loaded: LoadedModel, audio: Samples, **windowing: int) -> Expected:
    """The utterance alone, as a whole and as a stream that gets it in one piece."""
    engine = make_engine(loaded, offline_chunk_size=windowing["chunk_size"], **windowing)
    watched = _Watched(loaded.model)
    engine._family.runner._model = watched  # type: ignore[assignment]
    (whole,) = engine.transcribe([audio])
    alone = stream_in_pieces(make_engine(loaded, **windowing), audio, [])
    best, ids = watched.log_probs.topk(2, dim=-1)
    is_tied = bool((best[:, 0] - best[:, 1] < NEAR_TIE).any())
    return Expected(whole, said(alone), ids[:, 0].tolist(), best[:, 0].tolist(), is_tied)


def said(outputs: Sequence[RequestOutput]) -> list[tuple[str, int, bool]]:
    return [(o.text, o.decoded_samples, o.finished) for o in outputs]


def stream_among_others(
    engine: ASREngine, audio: Sequence[Samples], seed: int
) -> list[list[RequestOutput]]:
    """Every output of each utterance: fed in random pieces, begun at random moments."""
    rng = random.Random(seed)
    outputs: dict[str, list[RequestOutput]] = {}
    waiting = {f"u{number}": samples for number, samples in enumerate(audio)}
    fed: dict[str, int] = {}

    def step() -> None:
        for output in engine.step():
            outputs[output.request_id].append(output)

    while waiting:
        name = rng.choice(sorted(waiting))
        if name not in fed:
            engine.add_streaming_request(name, priority=rng.choice([0, 0, 1]))
            fed[name], outputs[name] = 0, []
        samples, begin = waiting[name], fed[name]
        end = min(len(samples), begin + rng.choice(_PIECES))
        ends = end == len(samples) and rng.random() < 0.7
        engine.feed_chunk(name, samples[begin:end], is_last=ends)
        fed[name] = end
        if ends:
            del waiting[name]
        if rng.random() < 0.4:
            step()
    while engine.has_work:
        step()
    return [outputs[f"u{number}"] for number in range(len(audio))]
