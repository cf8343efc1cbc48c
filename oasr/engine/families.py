"""Finds out what kind of model a directory holds, and loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

import oasr
from oasr.engine.config import EngineConfig
from oasr.engine.conformer_family import ConformerFamily
from oasr.engine.family import ModelFamily
from oasr.errors import ModelError
from oasr.models.registry import LoadedModel, load_model
from oasr.models.whisper.model import is_whisper

CONFORMER: Final = "conformer"
WHISPER: Final = "whisper"  # has no way with live audio
BUNDLED_MODEL: Final = Path(oasr.__file__).parent / "assets" / "callcenter-en-tiny"


def kind_of(directory: Path | None) -> str:
    """`CONFORMER` or `WHISPER`; None is the bundled model."""
    return WHISPER if directory is not None and is_whisper(directory) else CONFORMER


def load_family(config: EngineConfig, loaded: LoadedModel | None = None) -> ModelFamily:
    """The model in `config.ckpt_dir`, or one already `loaded`.

    ModelError says why a directory holds none that can be served.
    """
    if loaded is not None:
        return ConformerFamily(loaded, config)
    directory = Path(config.ckpt_dir or BUNDLED_MODEL)
    if is_whisper(directory):
        from oasr.engine.whisper_family import WhisperFamily

        return WhisperFamily(directory, config)
    if config.dtype == "int8":
        raise ModelError("dtype int8: only Whisper models have it")
    return ConformerFamily(
        load_model(directory, config.device, getattr(torch, config.dtype)), config
    )
