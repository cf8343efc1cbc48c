"""Model directories: what is loaded, and what is refused with the names in question."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor

import oasr
from oasr.errors import ModelError
from oasr.models.conformer.decoder import AttentionDecoder
from oasr.models.conformer.settings import DecoderSettings
from oasr.models.conformer.weights import decoder_shapes
from oasr.models.registry import load_model
from tests.support.conformers import STREAMING, VARIANTS, random_feats, random_model
from tests.support.decoders import naive_log_probs, random_weights

BUNDLED = Path(oasr.__file__).parent / "assets/callcenter-en-tiny"
TRAIN_YAML = {
    "input_dim": 80,
    "output_dim": 11,
    "encoder_conf": {
        "output_size": 16,
        "num_blocks": 2,
        "linear_units": 24,
        "cnn_module_kernel": 5,
        "cnn_module_norm": "layer_norm",
        "causal": True,
        "use_dynamic_chunk": True,
    },
    "decoder_conf": {"linear_units": 24, "num_blocks": 1, "r_num_blocks": 1},
    "cmvn": "global_cmvn",
    "cmvn_conf": {"cmvn_file": "global_cmvn", "is_json_cmvn": True},
}


def all_weights() -> dict[str, Tensor]:
    model = random_model()
    decoder = {name: torch.zeros(shape) for name, shape in decoder_shapes(STREAMING).items()}
    return model.state_dict() | decoder


@pytest.fixture
def directory(tmp_path) -> Path:
    """A complete WeNet directory of a tiny random network."""
    weights = all_weights()
    mean = weights["encoder.global_cmvn.mean"].double()
    variance = weights["encoder.global_cmvn.istd"].double() ** -2
    stats = {
        "mean_stat": (50 * mean).tolist(),
        "var_stat": (50 * (variance + mean.square())).tolist(),
        "frame_num": 50,
    }
    path = tmp_path / "tiny"
    path.mkdir()
    (path / "train.yaml").write_text(yaml.safe_dump(TRAIN_YAML), encoding="utf-8")
    (path / "global_cmvn").write_text(json.dumps(stats), encoding="utf-8")
    units = ["<blank>", "<unk>", *"abcdefgh", "<sos/eos>"]
    (path / "units.txt").write_text("".join(f"{u} {i}\n" for i, u in enumerate(units)))
    torch.save(weights, path / "final.pt")
    return path


def rewrite(directory: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    weights = all_weights()
    change(weights)
    torch.save(weights, directory / "final.pt")


def load(directory: Path, dtype: torch.dtype = torch.float32):
    return load_model(directory, "cpu", dtype)


def test_a_directory_is_loaded_with_exactly_its_weights(directory):
    loaded = load(directory)

    expected = all_weights()
    for name, value in (loaded.model.state_dict() | loaded.decoder_weights).items():
        assert torch.equal(value, expected.pop(name)), name
    assert not expected
    assert loaded.settings.vocab == len(loaded.tokenizer) == 11
    assert loaded.info.name == "tiny"
    assert loaded.info.languages == ()
    digest = hashlib.sha256((directory / "final.pt").read_bytes()).hexdigest()
    assert loaded.info.digest == digest[:16]


def test_the_bundled_model_says_what_it_is_and_is_read_as_the_requested_type():
    single, half = load(BUNDLED), load(BUNDLED, torch.bfloat16)

    assert (single.info.name, single.info.languages) == ("callcenter-en-tiny", ("en",))
    assert (single.info.device, single.info.dtype) == ("cpu", "float32")
    assert half.info.dtype == "bfloat16"
    for loaded, dtype in ((single, torch.float32), (half, torch.bfloat16)):
        parameters = [*loaded.model.parameters(), *loaded.decoder_weights.values()]
        assert {p.dtype for p in parameters} == {dtype}
        assert loaded.model.encoder.global_cmvn.mean.dtype == torch.float32
        assert not any(p.requires_grad for p in parameters)


def test_weights_in_half_precision_are_read_exactly(directory):
    halves = {name: value.half() for name, value in all_weights().items()}
    torch.save(halves, directory / "final.pt")
    (directory / "global_cmvn").unlink()
    config = {key: value for key, value in TRAIN_YAML.items() if not key.startswith("cmvn")}
    (directory / "train.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    for name in ("encoder.global_cmvn.mean", "encoder.global_cmvn.istd"):
        del halves[name]
    torch.save(halves, directory / "final.pt")

    state = load(directory).model.state_dict()

    assert all(torch.equal(state[n], halves[n].float()) for n in state)


@pytest.mark.parametrize(
    "table", ["encoder.embed.pos_enc.pe", "decoder.left_decoder.embed.1.pe", "decoder.embed.1.pe"]
)
def test_saved_position_tables_are_accepted_and_not_needed(directory, table):
    rewrite(directory, lambda weights: weights.update({table: torch.zeros(1, 5000, 16)}))

    assert table not in load(directory).model.state_dict()


@pytest.mark.parametrize("name", ["encoder.embed.2.pe", "ctc.embed.1.pe", "encoder.pe"])
def test_names_that_only_look_like_position_tables_are_surplus(directory, name):
    rewrite(directory, lambda weights: weights.update({name: torch.zeros(1)}))

    with pytest.raises(ModelError, match=f"surplus weights: {name}$"):
        load(directory)


@pytest.mark.parametrize(
    "name",
    [
        "encoder.encoders.1.self_attn.pos_bias_u",
        "encoder.global_cmvn.istd",
        "ctc.ctc_lo.bias",
        "decoder.right_decoder.decoders.0.src_attn.linear_k.weight",
    ],
)
def test_missing_weights_are_named(directory, name):
    rewrite(directory, lambda weights: weights.pop(name))

    with pytest.raises(ModelError, match=f"missing weights: {name}$"):
        load(directory)


@pytest.mark.parametrize(
    "name", ["encoder.encoders.2.norm_ff.weight", "decoder.left_decoder.decoders.1.norm1.bias"]
)
def test_surplus_weights_are_named(directory, name):
    rewrite(directory, lambda weights: weights.update({name: torch.zeros(16)}))

    with pytest.raises(ModelError, match=f"surplus weights: {name}$"):
        load(directory)


@pytest.mark.parametrize("name", ["ctc.ctc_lo.weight", "decoder.left_decoder.embed.0.weight"])
def test_weights_of_another_shape_are_named_with_both_shapes(directory, name):
    rewrite(directory, lambda weights: weights.update({name: torch.zeros(12, 16)}))

    expected = rf"weights of another shape: {name} \(12, 16\), expected \(11, 16\)"
    with pytest.raises(ModelError, match=expected):
        load(directory)


def test_many_names_are_cut_short_with_their_number(directory):
    rewrite(directory, lambda weights: weights.clear())

    with pytest.raises(ModelError, match=r"missing weights: .* and \d+ more$"):
        load(directory)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"garbage" * 100])
def test_a_file_that_is_no_checkpoint_is_refused(directory, content):
    (directory / "final.pt").write_bytes(content)

    with pytest.raises(ModelError, match=r"final\.pt cannot be read"):
        load(directory)


def test_a_checkpoint_is_never_executed(directory):
    torch.save({"weights": Path("/")}, directory / "final.pt")

    with pytest.raises(ModelError, match=r"final\.pt cannot be read"):
        load(directory)


def test_a_checkpoint_of_something_else_is_refused(directory):
    torch.save([torch.zeros(1)], directory / "final.pt")

    with pytest.raises(ModelError, match="not a mapping of names to tensors"):
        load(directory)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("final.pt", r"final\.pt cannot be read"),
        ("global_cmvn", r"global_cmvn cannot be read"),
        ("units.txt", r"holds none of units\.txt, words\.txt"),
        ("train.yaml", r"train\.yaml is missing"),
    ],
)
def test_a_missing_file_is_named(directory, file, message):
    (directory / file).unlink()

    with pytest.raises(ModelError, match=message):
        load(directory)


def test_words_txt_serves_as_the_unit_list(directory):
    shutil.move(directory / "units.txt", directory / "words.txt")

    assert load(directory).tokenizer.decode([2, 3]) == "ab"


def test_a_unit_list_of_another_size_is_refused(directory):
    with (directory / "units.txt").open("a") as units:
        units.write("z 11\n")

    with pytest.raises(ModelError, match="output_dim is 11, but there are 12 units"):
        load(directory)


@pytest.mark.parametrize(
    ("stats", "message"),
    [
        ({"mean_stat": [0.0] * 80, "var_stat": [1.0] * 80, "frame_num": 1}, "disagrees"),
        ({"mean_stat": [0.0] * 40, "var_stat": [1.0] * 40, "frame_num": 1}, "another size"),
        ({"mean_stat": [0.0] * 80, "var_stat": [1.0] * 80, "frame_num": 0}, "cannot be read"),
        ({"mean_stat": [0.0] * 80}, "cannot be read"),
        ([], "cannot be read"),
    ],
)
def test_a_normalisation_that_is_not_the_checkpoints_is_refused(directory, stats, message):
    (directory / "global_cmvn").write_text(json.dumps(stats), encoding="utf-8")

    with pytest.raises(ModelError, match=rf"global_cmvn {message}|global_cmvn .*{message}"):
        load(directory)


def test_a_card_gives_name_and_languages_and_nothing_else(directory):
    card = directory / "model.json"
    card.write_text('{"name": "night-shift", "languages": ["en", "de"]}')
    assert (load(directory).info.name, load(directory).info.languages) == (
        "night-shift",
        ("en", "de"),
    )

    for content, message in (
        ('{"colour": 1}', "unknown key: colour"),
        ('{"languages": "en"}', "languages a list"),
        ("{", "cannot be read"),
        ("[]", "is not a mapping"),
    ):
        card.write_text(content)
        with pytest.raises(ModelError, match=rf"model\.json.*{message}"):
            load(directory)


def test_a_path_that_is_no_directory_is_refused(tmp_path):
    with pytest.raises(ModelError, match="is not a directory"):
        load(tmp_path / "nowhere")


def test_a_directory_of_another_recipe_is_loaded_under_the_toolkits_names(directory):
    settings = replace(
        VARIANTS["transformer"],
        input_layer="conv2d8",
        decoder=DecoderSettings(4, 24, 1, 0, bidirectional=False),
        cmvn_file=None,
        sos=2,
        eos=3,
        special_tokens=("<eos>", "<sos>"),
    )
    config = {
        "output_dim": 11,
        "encoder": "transformer",
        "encoder_conf": {
            "output_size": 16,
            "num_blocks": 2,
            "linear_units": 24,
            "input_layer": "conv2d8",
            "use_dynamic_chunk": True,
        },
        "decoder": "transformer",
        "decoder_conf": {"linear_units": 24, "num_blocks": 1},
        "tokenizer_conf": {"special_tokens": {"<sos>": 2, "<eos>": 3}},
    }
    model, decoder = random_model(settings), random_weights(settings)
    halves = {n: v.half() for n, v in (model.state_dict() | decoder).items()}
    (directory / "train.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    torch.save(halves, directory / "final.pt")

    loaded = load(directory)

    assert replace(loaded.settings, conv_norm="layer_norm") == settings
    assert {
        "encoder.embed.conv.4.weight",
        "encoder.embed.linear.bias",
        "encoder.encoders.1.self_attn.linear_out.weight",
        "encoder.encoders.1.feed_forward.w_2.bias",
        "encoder.encoders.0.norm1.weight",
        "encoder.encoders.0.norm2.bias",
        "encoder.after_norm.weight",
        "decoder.embed.0.weight",
        "decoder.decoders.0.src_attn.linear_q.weight",
        "decoder.output_layer.bias",
    } <= halves.keys()
    assert not any("linear_pos" in name or "conv_module" in name for name in halves)
    feats, lengths = random_feats(1, 135), torch.tensor([135])
    with torch.inference_mode():
        found, expected = (m.encode_full(feats, lengths)[0] for m in (loaded.model, model))
        scorer = AttentionDecoder.from_weights(loaded.settings, loaded.decoder_weights)
        score = scorer.log_probs([(5, 6)], expected[0])
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=0.0)
    assert score[0].tolist() == pytest.approx(
        naive_log_probs(settings, decoder, (5, 6), expected[0], "decoder."), abs=2e-2
    )


def test_weights_of_older_recipes_that_no_layer_has_are_named(directory):
    name = "encoder.encoders.0.concat_linear.weight"
    rewrite(directory, lambda weights: weights.update({name: torch.zeros(16, 32)}))

    with pytest.raises(ModelError, match=f"surplus weights: {name}$"):
        load(directory)
