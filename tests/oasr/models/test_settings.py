"""Every key of `train.yaml` is implemented, refused by name, or known to be training's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import oasr
from oasr.errors import ModelError
from oasr.models.conformer.settings import DecoderSettings, ModelSettings
from oasr.models.conformer.train_yaml import load_settings

BUNDLED = Path(oasr.__file__).parent / "assets/callcenter-en-tiny/train.yaml"


def bundled() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(BUNDLED.read_text(encoding="utf-8"))
    return config


def changed(tmp_path: Path, dotted: str, value: object) -> Path:
    """The bundled file with one key set."""
    config = bundled()
    *parents, key = dotted.split(".")
    section = config
    for parent in parents:
        section = section.setdefault(parent, {})
    section[key] = value
    return written(tmp_path, config)


def written(tmp_path: Path, config: object) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def test_the_bundled_file_gives_its_network():
    settings = load_settings(BUNDLED)

    assert settings == ModelSettings(
        output_size=144,
        num_blocks=6,
        attention_heads=4,
        linear_units=576,
        kernel=15,
        vocab=258,
        decoder=DecoderSettings(4, 576, 1, 1, bidirectional=True),
        conv_norm="layer_norm",
        causal=True,
        dynamic_chunk=True,
        cmvn_file="global_cmvn",
        reverse_weight=0.3,
    )
    assert (settings.head_dim, settings.supports_streaming) == (36, True)
    assert [settings.window_frames(chunk) for chunk in (1, 4, 16)] == [7, 19, 67]
    assert [settings.encoder_frames(n) for n in (0, 6, 7, 10, 11, 67)] == [0, 0, 1, 1, 2, 16]


def test_absent_keys_mean_the_defaults_of_the_toolkit(tmp_path):
    settings = load_settings(written(tmp_path, {"input_dim": 80, "output_dim": 30}))

    assert settings == ModelSettings(
        output_size=256,
        num_blocks=6,
        attention_heads=4,
        linear_units=2048,
        kernel=15,
        vocab=30,
        decoder=DecoderSettings(4, 2048, 6, 0, bidirectional=True),
        conv_norm="batch_norm",
        activation="swish",
        macaron=True,
        causal=False,
        dynamic_chunk=False,
        cmvn_file=None,
    )
    assert not settings.supports_streaming


@pytest.mark.parametrize(
    "key",
    [
        "accum_grad", "grad_clip", "optim", "optim_conf", "scheduler_conf", "log_interval",
        "max_epoch", "dtype", "save_interval", "encoder_freeze", "dataset_conf.speed_perturb",
        "dataset_conf.spec_aug_conf", "dataset_conf.fbank_conf.dither", "model_conf.lsm_weight",
        "encoder_conf.dropout_rate", "encoder_conf.use_dynamic_left_chunk",
        "decoder_conf.src_attention_dropout_rate", "tokenizer_conf.bpe_path",
    ],
)  # fmt: skip
def test_keys_of_training_do_not_change_the_network(tmp_path, key):
    assert load_settings(changed(tmp_path, key, 17)) == load_settings(BUNDLED)


@pytest.mark.parametrize(
    "key",
    [
        "colour", "encoder_conf.colour", "decoder_conf.colour", "model_conf.colour",
        "ctc_conf.colour", "tokenizer_conf.colour", "cmvn_conf.colour",
        "dataset_conf.fbank_conf.window_type", "dataset_conf.resample_conf.colour",
        "encoder_conf.norm_eps",
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_by_name(tmp_path, key):
    with pytest.raises(ModelError, match=rf"unknown key: {key}$"):
        load_settings(changed(tmp_path, key, 1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder", "branchformer"),
        ("model", "paraformer"),
        ("ctc", "other"),
        ("decoder", "lstm"),
        ("tokenizer", "whisper"),
        ("cmvn", "utterance_cmvn"),
        ("cmvn_conf.is_json_cmvn", False),
        ("encoder_conf.input_layer", "conv1d2"),
        ("encoder_conf.input_layer", "linear"),
        ("encoder_conf.pos_enc_layer_type", "no_pos"),
        ("encoder_conf.pos_enc_layer_type", "rope_pos"),
        ("encoder_conf.selfattention_layer_type", "selfattn"),
        ("encoder_conf.normalize_before", False),
        ("encoder_conf.use_cnn_module", False),
        ("encoder_conf.concat_after", True),
        ("encoder_conf.cnn_module_norm", "rms_norm"),
        ("encoder_conf.activation_type", "hardtanh"),
        ("decoder_conf.normalize_before", False),
        ("decoder_conf.input_layer", "none"),
        ("model_conf.apply_non_blank_embedding", True),
        ("tokenizer_conf.is_multilingual", True),
        ("dataset_conf.feats_type", "log_mel_spectrogram"),
        ("dataset_conf.fbank_conf.num_mel_bins", 40),
        ("dataset_conf.fbank_conf.frame_shift", 20),
        ("dataset_conf.resample_conf.resample_rate", 8000),
        ("input_dim", 40),
    ],
)
def test_a_network_that_is_not_implemented_is_refused_by_name(tmp_path, key, value):
    with pytest.raises(
        ModelError, match=f"{key}: {value!r} is not supported|{key}: {value} is not"
    ):
        load_settings(changed(tmp_path, key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("output_dim", 0),
        ("encoder_conf.num_blocks", "six"),
        ("encoder_conf.num_blocks", True),
        ("encoder_conf.causal", 1),
        ("encoder_conf.attention_heads", 5),
        ("encoder_conf.output_size", 145),
        ("decoder_conf.attention_heads", 7),
        ("decoder_conf.r_num_blocks", -1),
        ("model_conf.reverse_weight", "much"),
        ("ctc_conf.ctc_blank_id", 258),
        ("cmvn_conf.cmvn_file", 3),
        ("encoder_conf", [1]),
        ("tokenizer_conf.special_tokens", "<sos>"),
        ("tokenizer_conf.special_tokens", {"<sos>": "two"}),
        ("tokenizer_conf.special_tokens", {"<eos>": 258}),
        ("encoder_conf.static_chunk_size", -1),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(tmp_path, key, value):
    with pytest.raises(ModelError, match=key):
        load_settings(changed(tmp_path, key, value))


def test_a_kernel_that_looks_both_ways_has_to_be_odd(tmp_path):
    config = {"output_dim": 9, "encoder_conf": {"cnn_module_kernel": 14}}

    with pytest.raises(ModelError, match=r"encoder_conf\.cnn_module_kernel"):
        load_settings(written(tmp_path, config))

    config["encoder_conf"]["causal"] = True  # type: ignore[index]
    assert load_settings(written(tmp_path, config)).kernel == 14


@pytest.mark.parametrize("input_layer", ["conv2d2", "conv2d", "conv2d6", "conv2d8"])
def test_every_front_end_of_the_toolkit_is_read(tmp_path, input_layer):
    settings = load_settings(changed(tmp_path, "encoder_conf.input_layer", input_layer))

    assert settings == replace(load_settings(BUNDLED), input_layer=input_layer)


def test_a_transformer_has_defaults_and_keys_of_its_own(tmp_path):
    config = {"encoder": "transformer", "encoder_conf": {"use_dynamic_chunk": True}}

    settings = load_settings(written(tmp_path, config | {"output_dim": 30}))

    assert (settings.encoder, settings.pos_enc, settings.activation) == (
        "transformer",
        "abs_pos",
        "relu",
    )
    assert (settings.kernel, settings.macaron, settings.supports_streaming) == (1, False, True)
    for key, value in (("cnn_module_kernel", 15), ("macaron_style", False), ("causal", True)):
        config["encoder_conf"] = {key: value}
        with pytest.raises(ModelError, match=f"unknown key: encoder_conf.{key}"):
            load_settings(written(tmp_path, config | {"output_dim": 30}))


@pytest.mark.parametrize(
    ("encoder", "positions", "attention"),
    [
        ("conformer", "abs_pos", "rel_selfattn"),
        ("conformer", "abs_pos", None),
        ("conformer", "rel_pos", "selfattn"),
        ("transformer", "abs_pos", "rel_selfattn"),
    ],
)
def test_positions_and_an_attention_that_do_not_belong_together_are_refused(
    tmp_path, encoder, positions, attention
):
    conf = {"pos_enc_layer_type": positions}
    if attention is not None:
        conf["selfattention_layer_type"] = attention
    config = {"encoder": encoder, "encoder_conf": conf, "output_dim": 30}

    with pytest.raises(ModelError, match=r"encoder_conf\.selfattention_layer_type: .* \(supported"):
        load_settings(written(tmp_path, config))


def test_a_conformer_may_have_its_positions_in_its_input(tmp_path):
    conf = {"pos_enc_layer_type": "abs_pos", "selfattention_layer_type": "selfattn"}

    settings = load_settings(written(tmp_path, {"encoder_conf": conf, "output_dim": 30}))

    assert settings.pos_enc == "abs_pos"


def test_a_static_chunk_size_counts_unless_chunks_are_dynamic(tmp_path):
    dynamic = changed(tmp_path, "encoder_conf.static_chunk_size", 16)
    assert load_settings(dynamic) == load_settings(BUNDLED)

    config = bundled()
    config["encoder_conf"] |= {"static_chunk_size": 16, "use_dynamic_chunk": False}
    settings = load_settings(written(tmp_path, config))
    assert (settings.static_chunk_size, settings.supports_streaming) == (16, True)


def test_sentence_bounds_are_the_last_unit_unless_they_are_listed(tmp_path):
    settings = load_settings(BUNDLED)
    assert (settings.sos_id, settings.eos_id) == (257, 257)

    listed = {"<blank>": 0, "<unk>": 1, "<sos>": 2, "<eos>": 3}
    settings = load_settings(changed(tmp_path, "tokenizer_conf.special_tokens", listed))
    assert (settings.sos_id, settings.eos_id) == (2, 3)

    settings = load_settings(changed(tmp_path, "tokenizer_conf.special_tokens", {"<blank>": 0}))
    assert (settings.sos_id, settings.eos_id) == (257, 257)


def test_file_names_of_the_training_machine_are_reduced_to_the_directory(tmp_path):
    config = bundled()
    del config["cmvn"], config["cmvn_conf"]
    config["cmvn_file"], config["is_json_cmvn"] = "exp/conformer/global_cmvn", True
    config["tokenizer_conf"]["symbol_table_path"] = "data/dict/lang_char.txt"
    config["tokenizer_conf"]["special_tokens"] = {"<blank>": 0, "<sos>": 2, "<zh>": 5}

    settings = load_settings(written(tmp_path, config))

    assert settings.cmvn_file == "global_cmvn"
    assert settings.units_file == "lang_char.txt"
    assert settings.special_tokens == ("<blank>", "<sos>", "<zh>")


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "\x00"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, text):
    path = tmp_path / "train.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ModelError, match=r"train\.yaml"):
        load_settings(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"train\.yaml cannot be read"):
        load_settings(tmp_path / "train.yaml")
