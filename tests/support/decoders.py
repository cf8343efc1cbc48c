"""Random attention decoders, and WeNet's decoder written out naively from their weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from oasr.models.conformer.settings import ModelSettings
from oasr.models.conformer.weights import decoder_shapes

Weights = dict[str, Tensor]


def random_weights(settings: ModelSettings, seed: int = 5) -> Weights:
    """Every weight of the attention decoder, random."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in decoder_shapes(settings).items():
        value = torch.randn(shape, generator=generator)
        weights[name] = 0.3 * value if len(shape) == 1 else value / math.sqrt(shape[-1])
        if "norm" in name and name.endswith("weight"):
            weights[name] = 1.0 + value.abs()
    return weights


def naive_log_probs(
    settings: ModelSettings, weights: Weights, spoken: Sequence[int], encoded: Tensor, at: str
) -> list[float]:
    """Log probability of each of `spoken` in turn, then of the end, one step at a time.

    `at` is the prefix of the weights of the direction in which `spoken` is given.
    """
    w = {name: value.double() for name, value in weights.items()}
    encoded = encoded.double()
    sequence = [settings.sos_id, *spoken]
    found = []
    for step, target in enumerate([*spoken, settings.eos_id], start=1):
        logits = _last_logits(settings, w, at, sequence[:step], encoded)
        found.append(float(logits[target] - torch.log(torch.exp(logits).sum())))
    return found


def _last_logits(
    settings: ModelSettings, w: Weights, at: str, sequence: Sequence[int], encoded: Tensor
) -> Tensor:
    """Scores of the unit after `sequence`, which is read whole."""
    size = settings.output_size
    rows = []
    for position, token in enumerate(sequence):
        row = w[f"{at}embed.0.weight"][token] * math.sqrt(size)
        for pair in range(0, size, 2):
            angle = position / 10_000 ** (pair / size)
            row[pair] += math.sin(angle)
            row[pair + 1] += math.cos(angle)
        rows.append(row)
    x = torch.stack(rows)
    heads = settings.decoder.attention_heads
    index = 0
    while f"{at}decoders.{index}.norm1.weight" in w:
        block = f"{at}decoders.{index}."
        y = _norm(w, f"{block}norm1", x)
        x = x + _attention(w, f"{block}self_attn.", heads, y, y, causal=True)
        y = _norm(w, f"{block}norm2", x)
        x = x + _attention(w, f"{block}src_attn.", heads, y, encoded, causal=False)
        y = _linear(w, f"{block}feed_forward.w_1", _norm(w, f"{block}norm3", x)).clamp_min(0.0)
        x = x + _linear(w, f"{block}feed_forward.w_2", y)
        index += 1
    return _linear(w, f"{at}output_layer", _norm(w, f"{at}after_norm", x[-1:]))[0]


def _attention(
    w: Weights, at: str, heads: int, queries: Tensor, memory: Tensor, causal: bool
) -> Tensor:
    q, k, v = (
        _linear(w, f"{at}linear_{name}", x)
        for name, x in (("q", queries), ("k", memory), ("v", memory))
    )
    dim = q.shape[1] // heads
    context = torch.zeros_like(q)
    for head in range(heads):
        part = slice(head * dim, (head + 1) * dim)
        for i in range(len(q)):
            seen = i + 1 if causal else len(k)
            scores = k[:seen, part] @ q[i, part] / math.sqrt(dim)
            context[i, part] = scores.softmax(0) @ v[:seen, part]
    return _linear(w, f"{at}linear_out", context)


def _linear(w: Weights, at: str, x: Tensor) -> Tensor:
    return x @ w[f"{at}.weight"].T + w[f"{at}.bias"]


def _norm(w: Weights, at: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    deviation = torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    return centred / deviation * w[f"{at}.weight"] + w[f"{at}.bias"]
