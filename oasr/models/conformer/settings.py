"""What `train.yaml` of a WeNet directory says about the network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import yaml

from oasr.errors import ModelError
from oasr.models.conformer.yaml_section import Section

ACTIVATIONS = ("swish", "relu", "gelu")
CONV_NORMS = ("batch_norm", "layer_norm")
DECODERS = ("bitransformer", "transformer")
SAMPLE_RATE = 16_000

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
        "input_layer": "conv2d",
        "normalize_before": True,
        "pos_enc_layer_type": "rel_pos",
        "selfattention_layer_type": "rel_selfattn",
        "static_chunk_size": 0,
        "use_cnn_module": True,
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


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """Shape of the attention decoder; `right_blocks` is 0 without a right-to-left one."""

    attention_heads: int
    linear_units: int
    num_blocks: int
    right_blocks: int
    bidirectional: bool


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Shape and conduct of one conformer; frames are encoder frames unless named otherwise."""

    output_size: int
    num_blocks: int
    attention_heads: int
    linear_units: int
    kernel: int
    vocab: int
    decoder: DecoderSettings
    conv_norm: str = "batch_norm"
    activation: str = "swish"
    macaron: bool = True
    causal: bool = False
    dynamic_chunk: bool = False
    cmvn_file: str | None = None  # None: features are not normalised
    blank_id: int = 0
    ctc_weight: float = 0.5
    reverse_weight: float = 0.0
    num_mel_bins: int = 80
    sample_rate: int = SAMPLE_RATE
    units_file: str = "units.txt"
    special_tokens: tuple[str, ...] = ()

    @property
    def subsampling_rate(self) -> int:
        """Feature frames per encoder frame."""
        return 4

    @property
    def right_context(self) -> int:
        """Feature frames after its first that an encoder frame needs."""
        return 6

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.output_size // self.attention_heads

    @property
    def supports_streaming(self) -> bool:
        """True if trained to decode chunk by chunk with no look-ahead inside the network."""
        return self.causal and self.dynamic_chunk

    def window_frames(self, chunk: int) -> int:
        """Feature frames from which `chunk` encoder frames are computed."""
        return (chunk - 1) * self.subsampling_rate + self.right_context + 1

    def encoder_frames(self, feature_frames: int) -> int:
        """Encoder frames that `feature_frames` feature frames give."""
        return max(((feature_frames - 1) // 2 - 1) // 2, 0)


def load_settings(path: Path) -> ModelSettings:
    """Read `train.yaml`; ModelError names the key that is unknown or not supported."""
    try:
        root = Section(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelError(f"{path.name} cannot be read: {error}") from error
    settings = _settings(root)
    for key, only in {"model": "asr_model", "encoder": "conformer", "ctc": "ctc"}.items():
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
    settings = ModelSettings(
        output_size=encoder.integer("output_size", 256, least=2),
        num_blocks=encoder.integer("num_blocks", 6),
        attention_heads=encoder.integer("attention_heads", 4),
        linear_units=encoder.integer("linear_units", 2048),
        kernel=encoder.integer("cnn_module_kernel", 15, least=2),
        conv_norm=encoder.choice("cnn_module_norm", "batch_norm", CONV_NORMS),
        activation=encoder.choice("activation_type", "swish", ACTIVATIONS),
        macaron=encoder.flag("macaron_style", True),
        causal=encoder.flag("causal", False),
        dynamic_chunk=encoder.flag("use_dynamic_chunk", False),
        vocab=root.integer("output_dim", 0),
        decoder=_decoder(root),
        cmvn_file=_cmvn_file(root),
        blank_id=ctc.integer("ctc_blank_id", 0, least=0),
        ctc_weight=model.number("ctc_weight", 0.5),
        reverse_weight=model.number("reverse_weight", 0.0),
        num_mel_bins=root.integer("input_dim", 80, least=7),
        units_file=units_file,
        special_tokens=special_tokens,
    )
    for key, only in ENCODER_FIXED.items():
        encoder.fixed(key, only)
    encoder.ignore(ENCODER_TRAINING_KEYS)
    model.fixed("apply_non_blank_embedding", False)
    model.ignore(MODEL_TRAINING_KEYS)
    for section in (encoder, ctc, model):
        section.close()
    return settings


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


def _tokenizer(root: Section) -> tuple[str, tuple[str, ...]]:
    root.choice("tokenizer", "char", ("bpe", "char"))
    conf = root.section("tokenizer_conf")
    units_file = Path(conf.text("symbol_table_path", None) or "units.txt").name
    special_tokens = conf.names("special_tokens")
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
