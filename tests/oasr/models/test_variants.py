"""Each network of the toolkit's recipes: its formulae, its streams, and its life in the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from oasr.decoding.tokenizer import Tokenizer
from oasr.engine.request import Request
from oasr.errors import OptionError
from oasr.features.fbank import Fbank
from oasr.models.conformer.attention import ChunkMask
from oasr.models.conformer.model import ConformerModel
from oasr.models.conformer.settings import ModelSettings
from oasr.models.registry import LoadedModel, ModelInfo
from tests.support.conformers import (
    OFFLINE,
    STREAMING,
    VARIANTS,
    chunk_visibility,
    naive_forward,
    random_feats,
    random_model,
    stream_through,
)
from tests.support.engine import make_engine, noise, stream_all

TOLERANCE = {"atol": 1e-4, "rtol": 0.0}
STATIC = replace(STREAMING, dynamic_chunk=False, static_chunk_size=4)


@pytest.fixture(scope="module", autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def full(model: ConformerModel, feats: Tensor, chunk: int = -1, left: int = -1) -> Tensor:
    lengths = torch.full((feats.shape[0],), feats.shape[1])
    return model.encode_full(feats, lengths, chunk, left)[0]


def loaded(settings: ModelSettings) -> LoadedModel:
    names = ["<blank>", *(f"▁w{i}" for i in range(1, settings.vocab))]
    info = ModelInfo("random", "0" * 16, "cpu", "float32", ())
    model = random_model(settings)
    if model.encoder.global_cmvn is not None:  # that of noise, so that noise changes its mind
        feats = Fbank()(torch.from_numpy(noise(32_000, 9))[None], torch.tensor([32_000]))[0][0]
        model.encoder.global_cmvn.mean.copy_(feats.mean(0))
        model.encoder.global_cmvn.istd.copy_(2.0 / feats.std(0))
    model.ctc.ctc_lo.bias.zero_()[0] = -1.0  # the blank
    return LoadedModel(model, settings, Tokenizer(names), info, {})


@pytest.mark.parametrize(
    ("input_layer", "rate", "right_context", "counts"),
    [
        ("conv2d2", 2, 2, {0: 0, 2: 0, 3: 1, 4: 1, 5: 2, 33: 16}),
        ("conv2d", 4, 6, {0: 0, 6: 0, 7: 1, 10: 1, 11: 2, 67: 16}),
        ("conv2d6", 6, 10, {0: 0, 10: 0, 11: 1, 16: 1, 17: 2, 101: 16}),
        ("conv2d8", 8, 14, {0: 0, 14: 0, 15: 1, 22: 1, 23: 2, 135: 16}),
    ],
)
def test_the_geometry_of_a_front_end_is_the_toolkits(input_layer, rate, right_context, counts):
    settings = replace(STREAMING, input_layer=input_layer)

    assert (settings.subsampling_rate, settings.right_context) == (rate, right_context)
    assert {frames: settings.encoder_frames(frames) for frames in counts} == counts
    assert settings.window_frames(16) == max(counts)
    model = random_model(settings)
    feats = random_feats(1, max(counts))
    for frames, count in counts.items():
        assert full(model, feats[:, :frames]).shape == (1, count, 16)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_whole_context_forward_follows_the_published_formulae(name):
    model = random_model(VARIANTS[name])
    feats = random_feats(1, 75)

    torch.testing.assert_close(full(model, feats)[0], naive_forward(model, feats[0]), **TOLERANCE)


@pytest.mark.parametrize("name", ["abs-pos", "transformer", "conv2d6"])
@pytest.mark.parametrize("left", [-1, 1])
def test_the_chunk_mask_hides_what_the_published_mask_hides(name, left):
    model = random_model(VARIANTS[name])
    feats = random_feats(1, 75)
    visible = chunk_visibility(model.settings.encoder_frames(75), 3, left)

    enc = full(model, feats, 3, left)

    torch.testing.assert_close(enc[0], naive_forward(model, feats[0], visible), **TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("chunk", [1, 4, 16])
@pytest.mark.parametrize("left", [-1, 0, 2])
def test_streamed_chunks_give_the_frames_of_the_masked_whole(name, chunk, left):
    model = random_model(VARIANTS[name])
    feats = random_feats(2, model.settings.window_frames(48))

    streamed = stream_through(model, feats, chunk, left)

    whole = full(model, feats, chunk, left)
    assert streamed.shape == whole.shape == (2, 48, 16)
    torch.testing.assert_close(streamed, whole, **TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("left", [-1, 0, 2])
def test_several_windows_of_one_forward_give_the_frames_of_the_masked_whole(name, left):
    model, chunk = random_model(VARIANTS[name]), 4
    settings = model.settings
    feats = random_feats(2, settings.window_frames(40))
    kv = torch.zeros(2, 2, 4, 0, 8)
    cnn = torch.zeros(2, 2, 16, settings.kernel - 1)
    found = []
    for start, stop in ((0, 4), (4, 16), (16, 36), (36, 40)):
        seen = start if left < 0 else min(start, left * chunk)
        first = start * settings.subsampling_rate
        enc, new_kv, cnn = model.encode_chunk(
            feats[:, first : first + settings.window_frames(stop - start)],
            torch.full((2,), start),
            kv[..., start - seen :, :],
            cnn,
            torch.ones(2, seen, dtype=torch.bool),
            ChunkMask(chunk, left),
        )
        kv = torch.cat((kv, new_kv), dim=3)
        found.append(enc)

    torch.testing.assert_close(torch.cat(found, 1), full(model, feats, chunk, left), **TOLERANCE)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("chunk", [-1, 4])
def test_an_utterance_does_not_depend_on_longer_batch_mates_or_on_what_pads_it(name, chunk):
    model = random_model(VARIANTS[name])
    lengths = torch.tensor([15 + (37 * row) % 120 for row in range(5)])
    feats = random_feats(5, int(lengths.max()))
    feats[torch.arange(feats.shape[1]) >= lengths[:, None]] = float("nan")

    enc, counts = model.encode_full(feats, lengths, chunk)

    for row, length in enumerate(lengths.tolist()):
        alone = full(model, feats[row : row + 1, :length], chunk)[0]
        assert counts[row] == alone.shape[0]
        torch.testing.assert_close(enc[row, : counts[row]], alone, **TOLERANCE)


@pytest.mark.parametrize("name", ["abs-pos", "transformer"])
def test_added_positions_past_a_block_of_the_table_go_on_exactly(name):
    model, other = random_model(VARIANTS[name]), random_model(VARIANTS[name])
    feats = random_feats(2, STREAMING.window_frames(4))
    offsets = torch.tensor([1_021, 6_000])
    kv = torch.zeros(2, 2, 4, 0, 8)
    cnn = torch.zeros(2, 2, 16, model.settings.kernel - 1)
    arguments = (feats, offsets, kv, cnn, torch.ones(2, 0, dtype=torch.bool))

    together = model.encode_chunk(*arguments)[0]

    for position in (0, 600, 2_000):
        other.encode_chunk(feats, torch.full((len(feats),), position), *arguments[2:])
    assert torch.equal(together, other.encode_chunk(*arguments)[0])
    at_start = model.encode_chunk(feats, torch.tensor([0, 0]), *arguments[2:])[0]
    assert not torch.allclose(together, at_start, atol=1e-2)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_single(name, dtype):
    settings = VARIANTS[name]
    feats = random_feats(1, settings.window_frames(16))

    half = random_model(settings, dtype=dtype)

    single = random_model(settings)
    torch.testing.assert_close(
        half.ctc_log_probs(full(half, feats, 4)),
        single.ctc_log_probs(full(single, feats, 4)),
        atol=0.25,
        rtol=0.0,
    )


def test_a_model_of_one_chunk_size_decodes_in_it_alone():
    model, dynamic = random_model(STATIC), random_model()
    feats = random_feats(1, STATIC.window_frames(16))

    torch.testing.assert_close(stream_through(model, feats, 4), full(dynamic, feats, 4))
    assert torch.equal(full(model, feats), full(dynamic, feats, 4))
    assert torch.equal(full(model, feats, 4, 1), full(dynamic, feats, 4, 1))
    for refused in (lambda: stream_through(model, feats, 16), lambda: full(model, feats, 16)):
        with pytest.raises(OptionError, match="chunks of 4 frames, not of 16") as caught:
            refused()
        assert caught.value.code == "chunk_size_unsupported"


def test_the_engine_refuses_another_chunk_size_at_admission():
    fitting = make_engine(loaded(STATIC), chunk_size=4)
    other = make_engine(loaded(STATIC), chunk_size=16, offline_chunk_size=16)

    for admit in (
        other.add_streaming_request,
        lambda: other.add_request(Request(audio=noise(16_000, 1))),
    ):
        with pytest.raises(OptionError, match="chunks of 4 frames, not of 16"):
            admit()
    assert not other.has_work
    (streamed,) = stream_all(fitting, [noise(30_000, seed=1)])
    (whole,) = fitting.transcribe([noise(30_000, seed=1)])
    assert streamed.tokens == whole.tokens
    assert len(streamed.tokens) > 5


@pytest.mark.parametrize(
    "settings",
    [OFFLINE, replace(STREAMING, causal=False), replace(STREAMING, dynamic_chunk=False)],
    ids=["offline", "looks-ahead", "full-context"],
)
def test_a_model_that_cannot_stream_serves_files_and_refuses_streams(settings):
    engine = make_engine(loaded(settings))

    with pytest.raises(OptionError, match="not trained to stream"):
        engine.add_streaming_request()

    (output,) = engine.transcribe([noise(30_000, seed=1)])
    assert output.finish_reason == "stop"
    assert output.tokens


@pytest.mark.parametrize("name", VARIANTS)
def test_the_engine_streams_what_it_decodes_whole_under_the_same_mask(name):
    settings = VARIANTS[name]
    engine = make_engine(loaded(settings), chunk_size=4, offline_chunk_size=4, max_batch_size=3)
    utterances = [noise(samples, seed) for seed, samples in enumerate((16_000, 41_234, 7, 9_999))]

    streamed = stream_all(engine, utterances)

    whole = engine.transcribe(utterances)
    samples_per_frame = 160 * settings.subsampling_rate
    for utterance, stream, file in zip(utterances, streamed, whole, strict=True):
        assert stream.finish_reason == file.finish_reason == "stop"
        assert (stream.tokens, stream.token_frames) == (file.tokens, file.token_frames)
        np.testing.assert_allclose(stream.scores, file.scores, atol=1e-4)
        last_frame = (len(utterance) + 8_000) // samples_per_frame + 4
        assert max(stream.token_frames, default=0) <= last_frame
    assert sum(len(stream.tokens) for stream in streamed) > 15
