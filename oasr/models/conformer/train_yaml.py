"""Reads what `train.yaml` of a WeNet directory says about the network."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from oasr.errors import ModelError
from oasr.models.conformer.settings import (
    SAMPLE_RATE,
    SUBSAMPLINGS,
    DecoderSettings,
    ModelSettings,
)
from oasr.models.conformer.yaml_section import Section

ACTIVATIONS = ("swish", "relu", "gelu")
CONV_NORMS = ("batch_norm", "layer_norm")
DECODERS = ("bitransformer", "transformer")

# The positions that each encoder can have, its default first, and the attention to each.
ENCODERS = MappingProxyType({"conformer": ("rel_pos", "abs_pos"), "transformer": ("abs_pos",)})
ATTENTIONS = MappingProxyType({"rel_pos": "rel_selfattn", "abs_pos": "selfattn"})

# Keys that steer training and leave what the trained network computes alone.
TRAINING_KEYS = (
    "accum_grad",
    "dataset",
    "dtype",
    "log_interval",
    "max_epoch",
    "model_dir",
    "train_engine",
    "use_amp",
)
TRAINING_PREFIXES = ("optim", "scheduler", "grad_", "save_")
TRAINING_SUFFIXES = ("_freeze",)
BLOCK_TRAINING_KEYS = (
    "dropout_rate",
    "positional_dropout_rate",
    "gradient_checkpointing",
    "use_sdpa",
)
ENCODER_TRAINING_KEYS = (
    *BLOCK_TRAINING_KEYS,
    "attention_dropout_rate",
    "use_dynamic_left_chunk",
)
DECODER_TRAINING_KEYS = (
    *BLOCK_TRAINING_KEYS,
    "self_attention_dropout_rate",
    "src_attention_dropout_rate",
)
MODEL_TRAINING_KEYS = ("lsm_weight", "length_normalized_loss")
TOKENIZER_TRAINING_KEYS = (
    "bpe_path",
    "non_lang_syms_path",
    "num_languages",
    "split_with_space",
)

# Keys whose one supported value is also WeNet's default.
ENCODER_FIXED = MappingProxyType(
    {
        "concat_after": False,
        "normalize_before": True,
    }
)
DECODER_FIXED = MappingProxyType(
    {
        "concat_after": False,
        "input_layer": "embed",
        "normalize_before": True,
        "src_attention": True,
        "use_output_layer": True,
    }
)


def load_settings(path: Path) -> ModelSettings:
    """Read `train.yaml`; ModelError names the key that is unknown or not supported."""
    try:
        root = Section(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    settings = _settings(root)
    for key, only in {"model": "asr_model", "ctc": "ctc"}.items():
        root.fixed(key, only)
    _check_dataset(root.section("dataset_conf"))
    root.ignore(TRAINING_KEYS, TRAINING_PREFIXES, TRAINING_SUFFIXES)
    root.close()
    _check_shape(settings)
    return settings


def _settings(root: Section) -> ModelSettings:
    encoder = root.section("encoder_conf")
    ctc, model = root.section("ctc_conf"), root.section("model_conf")
    units_file, special_tokens = _tokenizer(root)
    kind = root.choice("encoder", "conformer", ENCODERS)
    settings = ModelSettings(
        output_size=encoder.integer("output_size", 256, least=2),
        num_blocks=encoder.integer("num_blocks", 6),
        attention_heads=encoder.integer("attention_heads", 4),
        linear_units=encoder.integer("linear_units", 2048),
        encoder=kind,
        **(_conformer(encoder) if kind == "conformer" else _transformer(encoder)),
        input_layer=encoder.choice("input_layer", "conv2d", SUBSAMPLINGS),
        pos_enc=_positions(encoder, ENCODERS[kind]),
        **_chunks(encoder),
        vocab=root.integer("output_dim", 0),
        decoder=_decoder(root),
        cmvn_file=_cmvn_file(root),
        blank_id=ctc.integer("ctc_blank_id", 0, least=0),
        sos=special_tokens.get("<sos>"),
        eos=special_tokens.get("<eos>"),
        ctc_weight=model.number("ctc_weight", 0.5),
        reverse_weight=model.number("reverse_weight", 0.0),
        num_mel_bins=root.integer("input_dim", 80, least=7),
        units_file=units_file,
        special_tokens=tuple(special_tokens),
    )
    for key, only in ENCODER_FIXED.items():
        encoder.fixed(key, only)
    encoder.ignore(ENCODER_TRAINING_KEYS)
    model.fixed("apply_non_blank_embedding", False)
    model.ignore(MODEL_TRAINING_KEYS)
    for section in (encoder, ctc, model):
        section.close()
    return settings


def _conformer(encoder: Section) -> dict[str, Any]:
    encoder.fixed("use_cnn_module", True)
    return {
        "kernel": encoder.integer("cnn_module_kernel", 15, least=2),
        "conv_norm": encoder.choice("cnn_module_norm", "batch_norm", CONV_NORMS),
        "activation": encoder.choice("activation_type", "swish", ACTIVATIONS),
        "macaron": encoder.flag("macaron_style", True),
        "causal": encoder.flag("causal", False),
    }


def _transformer(encoder: Section) -> dict[str, Any]:
    """The keys of convolution modules are unknown to it."""
    activation = encoder.choice("activation_type", "relu", ACTIVATIONS)
    return {"kernel": 1, "activation": activation, "macaron": False}


def _positions(encoder: Section, known: tuple[str, ...]) -> str:
    pos_enc = encoder.choice("pos_enc_layer_type", known[0], known)
    encoder.choice("selfattention_layer_type", ATTENTIONS[known[0]], (ATTENTIONS[pos_enc],))
    return pos_enc


def _chunks(encoder: Section) -> dict[str, Any]:
    """A model of dynamic chunks never sees its static chunk size."""
    dynamic = encoder.flag("use_dynamic_chunk", False)
    static = encoder.integer("static_chunk_size", 0, least=0)
    return {"dynamic_chunk": dynamic, "static_chunk_size": 0 if dynamic else static}


def _decoder(root: Section) -> DecoderSettings:
    kind = root.choice("decoder", "bitransformer", DECODERS)
    conf = root.section("decoder_conf")
    for key, only in DECODER_FIXED.items():
        conf.fixed(key, only)
    right_blocks = conf.integer("r_num_blocks", 0, least=0)
    decoder = DecoderSettings(
        attention_heads=conf.integer("attention_heads", 4),
        linear_units=conf.integer("linear_units", 2048),
        num_blocks=conf.integer("num_blocks", 6),
        right_blocks=right_blocks if kind == "bitransformer" else 0,
        bidirectional=kind == "bitransformer",
    )
    conf.ignore(DECODER_TRAINING_KEYS)
    conf.close()
    return decoder


def _cmvn_file(root: Section) -> str | None:
    """File name of the normalisation; older recipes name it at the top level."""
    old_name = root.text("cmvn_file", None)
    root.fixed("is_json_cmvn", True)
    conf = root.section("cmvn_conf")
    name = conf.text("cmvn_file", None)
    conf.fixed("is_json_cmvn", True)
    conf.close()
    if root.text("cmvn", None) is None:
        return old_name and Path(old_name).name
    root.fixed("cmvn", "global_cmvn")
    return Path(name or "global_cmvn").name


def _tokenizer(root: Section) -> tuple[str, dict[str, int]]:
    root.choice("tokenizer", "char", ("bpe", "char"))
    conf = root.section("tokenizer_conf")
    units_file = Path(conf.text("symbol_table_path", None) or "units.txt").name
    special_tokens = conf.ids("special_tokens")
    conf.fixed("is_multilingual", False)
    conf.ignore(TOKENIZER_TRAINING_KEYS)
    conf.close()
    return units_file, special_tokens


def _check_dataset(conf: Section) -> None:
    conf.fixed("feats_type", "fbank")
    resample = conf.section("resample_conf")
    resample.fixed("resample_rate", SAMPLE_RATE)
    fbank = conf.section("fbank_conf")
    for key, only in {"num_mel_bins": 80, "frame_shift": 10, "frame_length": 25}.items():
        fbank.fixed(key, only)
    fbank.ignore(("dither",))
    for section in (resample, fbank):
        section.close()


def _check_shape(settings: ModelSettings) -> None:
    if settings.num_mel_bins != 80:
        raise ModelError(f"train.yaml: input_dim: {settings.num_mel_bins} is not supported")
    if settings.blank_id >= settings.vocab:
        raise ModelError(f"train.yaml: ctc_conf.ctc_blank_id: {settings.blank_id} is no unit")
    for token_id in (settings.sos_id, settings.eos_id):
        if not 0 <= token_id < settings.vocab:
            raise ModelError(f"train.yaml: tokenizer_conf.special_tokens: {token_id} is no unit")
    if settings.output_size % 2:
        raise ModelError("train.yaml: encoder_conf.output_size: has to be even")
    heads = {
        "encoder_conf": settings.attention_heads,
        "decoder_conf": settings.decoder.attention_heads,
    }
    for name, count in heads.items():
        if settings.output_size % count:
            raise ModelError(
                f"train.yaml: {name}.attention_heads: {count} does not divide the width"
            )
    if not settings.causal and settings.kernel % 2 == 0:
        raise ModelError("train.yaml: encoder_conf.cnn_module_kernel: has to be odd if not causal")
