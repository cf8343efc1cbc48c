"""Small models, engines and ways to drive them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oasr.decoding.tokenizer import Tokenizer
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from oasr.engine.request import RequestOutput
from oasr.models.conformer.model import ConformerModel
from oasr.models.conformer.settings import DecoderSettings, ModelSettings
from oasr.models.registry import LoadedModel, ModelInfo

Samples = NDArray[np.float32]
VOCAB = 12


def tiny_model(causal: bool = True) -> LoadedModel:
    """Random weights: it says nonsense, much of it, and says it fast."""
    settings = ModelSettings(
        output_size=16,
        num_blocks=2,
        attention_heads=2,
        linear_units=24,
        kernel=5,
        vocab=VOCAB,
        decoder=DecoderSettings(2, 24, 1, 0, False),
        conv_norm="layer_norm",
        causal=causal,
        dynamic_chunk=causal,
    )
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = ConformerModel(settings)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.mul_(4.0)
    model.prepare(torch.device("cpu"), torch.float32)
    tokenizer = Tokenizer(["<blank>", *(f"▁w{i}" for i in range(1, VOCAB))])
    info = ModelInfo("tiny", "0" * 16, "cpu", "float32", ())
    return LoadedModel(model, settings, tokenizer, info, {})


class FaultyModel:
    """A model whose forwards raise when `is_bad` says so of a row's features."""

    def __init__(self, model: ConformerModel, loudness: float) -> None:
        self._model = model
        self._loudness = loudness

    def encode_chunk(self, feats: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self._check(feats)
        return self._model.encode_chunk(feats, *rest)

    def encode_full(self, feats: Tensor, lengths: Tensor, **mask: int) -> tuple[Tensor, Tensor]:
        self._check(feats)
        return self._model.encode_full(feats, lengths, **mask)

    def ctc_log_probs(self, encoded: Tensor) -> Tensor:
        return self._model.ctc_log_probs(encoded)

    def _check(self, feats: Tensor) -> None:
        if feats.amax() > self._loudness:
            raise RuntimeError("a row is too loud")


def noise(samples: int, seed: int, level: float = 0.1) -> Samples:
    """Noise whose colour and level wander, so that a random model changes its mind."""
    rng = np.random.default_rng(seed)
    steps = -(-samples // 1600) + 1
    gains = np.repeat(10 ** rng.uniform(-2, 0, steps), 1600)[:samples]
    wave = rng.standard_normal(samples) * gains * level
    return np.clip(wave, -1, 1).astype(np.float32)


def make_engine(loaded: LoadedModel, **settings: object) -> ASREngine:
    return ASREngine(EngineConfig(**settings), loaded)  # type: ignore[arg-type]


def stream_all(engine: ASREngine, utterances: Sequence[Samples]) -> list[RequestOutput]:
    """The terminal outputs of one stream an utterance, each given at once."""
    ids = [engine.add_streaming_request() for _ in utterances]
    for request_id, samples in zip(ids, utterances, strict=True):
        engine.feed_chunk(request_id, samples, is_last=True)
    found = terminal(engine.run())
    return [found[request_id] for request_id in ids]


def stream_in_pieces(
    engine: ASREngine, samples: Samples, edges: Iterable[int]
) -> list[RequestOutput]:
    """Every output of a stream that is fed up to each of `edges` in turn, stepping between."""
    request_id = engine.add_streaming_request("only")
    outputs: list[RequestOutput] = []
    fed = 0
    for edge in edges:
        engine.feed_chunk(request_id, samples[fed:edge])
        fed = edge
        outputs += engine.run()
    engine.feed_chunk(request_id, samples[fed:], is_last=True)
    return outputs + engine.run()


def terminal(outputs: Iterable[RequestOutput]) -> dict[str, RequestOutput]:
    """The terminal output of each id; fails if one has two."""
    found: dict[str, RequestOutput] = {}
    for output in outputs:
        if output.finished:
            assert output.request_id not in found
            found[output.request_id] = output
    return found


def make_bundled_engine(**settings: object) -> ASREngine:
    """An engine with the model that comes with the product."""
    return ASREngine(EngineConfig(**settings))  # type: ignore[arg-type]
