"""Reads `final.pt` and checks that it holds exactly the weights of the network."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from oasr.errors import ModelError
from oasr.models.conformer.decoder import AttentionDecoder
from oasr.models.conformer.model import ConformerModel
from oasr.models.conformer.settings import ModelSettings

Shapes = dict[str, tuple[int, ...]]

# Newer toolkits also save the tables of positions, which are computed here.
POSITION_TABLE = re.compile(r"(encoder|decoder)\.(.+\.)?(embed\.1|pos_enc)\.pe")
NAMES_SHOWN = 8


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint by name, on the CPU; ModelError if it is not one."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ModelError(f"{path.name} is not a mapping of names to tensors")
    return {str(name): value for name, value in state.items()}


def split_weights(
    weights: Mapping[str, Tensor], model: ConformerModel
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of encoder and CTC head, and those of the attention decoder.

    ModelError names weights that are missing, surplus or of another shape.
    """
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    decoder = decoder_shapes(model.settings)
    given = {n: v for n, v in weights.items() if not POSITION_TABLE.fullmatch(n)}
    expected = shapes | decoder
    _refuse("missing weights", expected.keys() - given.keys())
    _refuse("surplus weights", given.keys() - expected.keys())
    _refuse(
        "weights of another shape",
        (
            f"{name} {tuple(given[name].shape)}, expected {shape}"
            for name, shape in expected.items()
            if tuple(given[name].shape) != shape
        ),
    )
    return {name: given[name] for name in shapes}, {name: given[name] for name in decoder}


def decoder_shapes(settings: ModelSettings) -> Shapes:
    """Names and shapes of the attention decoder's weights."""
    with torch.device("meta"):
        decoder = AttentionDecoder(settings)
    return {name: tuple(value.shape) for name, value in decoder.state_dict().items()}


def check_cmvn(path: Path, model: ConformerModel) -> None:
    """ModelError unless the normalisation file agrees with the buffers of the checkpoint."""
    try:
        stats = json.loads(path.read_text(encoding="utf-8"))
        count = int(stats["frame_num"])
        if count < 1:
            raise ValueError("frame_num is not positive")
        mean = torch.tensor(stats["mean_stat"], dtype=torch.float64) / count
        variance = torch.tensor(stats["var_stat"], dtype=torch.float64) / count - mean.square()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path.name} cannot be read: {error!r}") from error
    istd = variance.clamp_min(1e-20).rsqrt()
    cmvn = model.encoder.global_cmvn
    if cmvn is None or cmvn.mean.shape != mean.shape or cmvn.istd.shape != istd.shape:
        raise ModelError(f"{path.name} is for features of another size")
    for name, ours, theirs in (("mean", cmvn.mean, mean), ("istd", cmvn.istd, istd)):
        if not torch.allclose(ours.double().cpu(), theirs, rtol=1e-2, atol=1e-3):
            raise ModelError(f"{path.name} disagrees with encoder.global_cmvn.{name}")


def _refuse(what: str, names: Iterable[str]) -> None:
    found = sorted(names)
    if found:
        more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
        raise ModelError(f"{what}: {', '.join(found[:NAMES_SHOWN])}{more}")
