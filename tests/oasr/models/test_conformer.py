"""The network against WeNet's formulae, against itself in chunks, and against its batch mates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import oasr
from oasr.errors import OptionError
from oasr.models.conformer import attention, subsampling
from oasr.models.conformer.model import ConformerModel
from oasr.models.registry import load_model
from tests.support.conformers import (
    OFFLINE,
    STREAMING,
    chunk_visibility,
    naive_forward,
    random_feats,
    random_model,
    stream_through,
)

BUNDLED = Path(oasr.__file__).parent / "assets/callcenter-en-tiny"
TOLERANCE = {"atol": 1e-4, "rtol": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _inference():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def bundled() -> ConformerModel:
    return load_model(BUNDLED, "cpu", torch.float32).model


def full(model: ConformerModel, feats: Tensor, chunk: int = -1, left: int = -1) -> Tensor:
    lengths = torch.full((feats.shape[0],), feats.shape[1])
    return model.encode_full(feats, lengths, chunk, left)[0]


@pytest.mark.parametrize(
    "settings",
    [
        STREAMING,
        OFFLINE,
        replace(STREAMING, activation="gelu", conv_norm="batch_norm", macaron=False),
        replace(OFFLINE, activation="swish", conv_norm="layer_norm", macaron=True),
    ],
    ids=["streaming", "offline", "causal-gelu-batch-norm", "swish-layer-norm-macaron"],
)
def test_the_whole_context_forward_follows_the_published_formulae(settings):
    model = random_model(settings)
    feats = random_feats(1, 75)

    enc = full(model, feats)

    torch.testing.assert_close(enc[0], naive_forward(model, feats[0]), **TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 3, 16])
@pytest.mark.parametrize("left", [-1, 0, 2])
def test_the_chunk_mask_hides_what_the_published_mask_hides(chunk, left):
    model = random_model()
    feats = random_feats(1, 75)
    frames = STREAMING.encoder_frames(75)

    enc = full(model, feats, chunk, left)

    expected = naive_forward(model, feats[0], chunk_visibility(frames, chunk, left))
    torch.testing.assert_close(enc[0], expected, **TOLERANCE)


@pytest.mark.parametrize("chunk", [1, 4, 16])
@pytest.mark.parametrize("left", [0, 4, -1])
def test_streamed_chunks_give_the_log_posteriors_of_the_masked_whole(bundled, chunk, left):
    feats = 3.0 * random_feats(2, STREAMING.window_frames(96)) + 10.0

    streamed = bundled.ctc_log_probs(stream_through(bundled, feats, chunk, left))

    whole = bundled.ctc_log_probs(full(bundled, feats, chunk, left))
    assert streamed.shape == whole.shape
    torch.testing.assert_close(streamed, whole, **TOLERANCE)


def test_streams_at_different_offsets_share_a_forward_and_hidden_columns_are_not_read():
    model = random_model()
    chunk, window = 4, STREAMING.window_frames(4)
    feats = random_feats(3, STREAMING.window_frames(8 * chunk))
    expected = full(model, feats, chunk)
    starts = [0, 2 * chunk, 7 * chunk]
    widest = max(starts)
    histories = [history(model, feats[b : b + 1], chunk, start) for b, start in enumerate(starts)]
    kv = torch.cat(
        [
            torch.nn.functional.pad(h[0], (0, 0, widest - s, 0), value=float("nan"))
            for h, s in zip(histories, starts, strict=True)
        ],
        dim=1,
    )
    kv_mask = torch.arange(-widest, 0) >= -torch.tensor(starts).unsqueeze(1)
    windows = torch.stack([feats[b, 4 * s : 4 * s + window] for b, s in enumerate(starts)])

    enc, new_kv, new_cnn = model.encode_chunk(
        windows, torch.tensor(starts), kv, torch.cat([h[1] for h in histories], dim=1), kv_mask
    )

    wanted = torch.stack([expected[b, s : s + chunk] for b, s in enumerate(starts)])
    torch.testing.assert_close(enc, wanted, **TOLERANCE)
    assert new_kv.isfinite().all()
    assert new_cnn.shape == (2, 3, 16, 4)


def history(model: ConformerModel, feats: Tensor, chunk: int, until: int) -> tuple[Tensor, Tensor]:
    """Contiguous caches of one stream after `until` encoder frames."""
    settings = model.settings
    kv = torch.zeros(settings.num_blocks, 1, settings.attention_heads, 0, 2 * settings.head_dim)
    cnn = torch.zeros(settings.num_blocks, 1, settings.output_size, settings.kernel - 1)
    for offset in range(0, until, chunk):
        window = feats[:, 4 * offset : 4 * offset + settings.window_frames(chunk)]
        mask = torch.ones(1, offset, dtype=torch.bool)
        _, new_kv, cnn = model.encode_chunk(window, torch.tensor([offset]), kv, cnn, mask)
        kv = torch.cat((kv, new_kv), dim=3)
    return kv, cnn


@pytest.mark.parametrize("rows", [2, 7, 32])
def test_a_stream_does_not_depend_on_its_batch_mates(bundled, rows):
    feats = 3.0 * random_feats(rows, STREAMING.window_frames(32)) + 10.0

    together = stream_through(bundled, feats, 16)

    alone = torch.cat([stream_through(bundled, row[None], 16) for row in feats])
    torch.testing.assert_close(together, alone, **TOLERANCE)


@pytest.mark.parametrize("settings", [STREAMING, OFFLINE], ids=["streaming", "offline"])
@pytest.mark.parametrize("rows", [2, 7, 32])
@pytest.mark.parametrize("chunk", [-1, 4])
def test_an_utterance_does_not_depend_on_longer_batch_mates_or_on_what_pads_it(
    settings, rows, chunk
):
    model = random_model(settings)
    lengths = torch.tensor([7 + (37 * row) % 120 for row in range(rows)])
    feats = random_feats(rows, int(lengths.max()))
    feats[torch.arange(feats.shape[1]) >= lengths[:, None]] = float("nan")

    enc, counts = model.encode_full(feats, lengths, chunk)

    for row, length in enumerate(lengths.tolist()):
        alone = full(model, feats[row : row + 1, :length], chunk)[0]
        assert counts[row] == alone.shape[0] == settings.encoder_frames(length)
        torch.testing.assert_close(enc[row, : counts[row]], alone, **TOLERANCE)


@pytest.mark.parametrize(("chunk", "left"), [(-1, -1), (4, -1), (4, 2)])
def test_blocks_of_queries_give_what_one_block_gives(monkeypatch, chunk, left):
    model = random_model()
    feats = random_feats(2, 400)
    lengths = torch.tensor([400, 203])
    at_once, counts = model.encode_full(feats, lengths, chunk, left)

    monkeypatch.setattr(attention, "SCORES_PER_BLOCK", 2 * 4 * 99 * 7)
    monkeypatch.setattr(subsampling, "FRAMES_PER_PROJECTION", 32)
    in_blocks, _ = model.encode_full(feats, lengths, chunk, left)

    for row, count in enumerate(counts):
        torch.testing.assert_close(in_blocks[row, :count], at_once[row, :count], **TOLERANCE)


@pytest.mark.parametrize("frames", [0, 1, 6])
def test_less_than_seven_feature_frames_give_no_encoder_frame(frames):
    enc, counts = random_model().encode_full(torch.zeros(2, frames, 80), torch.tensor([frames, 0]))

    assert enc.shape == (2, 0, 16)
    assert counts.tolist() == [0, 0]


def test_a_row_without_frames_leaves_its_batch_mates_alone():
    model = random_model()
    feats = random_feats(2, 60)

    enc, counts = model.encode_full(feats, torch.tensor([60, 3]), 4)

    assert counts.tolist() == [14, 0]
    assert enc.isfinite().all()
    torch.testing.assert_close(enc[:1], full(model, feats[:1], 4), **TOLERANCE)


def test_positions_past_a_block_of_the_table_go_on_exactly():
    model = random_model()
    feats = random_feats(1, STREAMING.window_frames(4))
    first = 1_021  # the window crosses from one block of 128 into the next
    kv = torch.zeros(2, 1, 4, 0, 8)
    cnn = torch.zeros(2, 1, 16, 4)
    arguments = (feats, torch.tensor([first]), kv, cnn, torch.ones(1, 0, dtype=torch.bool))

    grown_at_once = model.encode_chunk(*arguments)[0]

    other = random_model()
    for position in (0, 600, 2_000):
        other.encode_chunk(feats, torch.full((len(feats),), position), *arguments[2:])
    assert torch.equal(grown_at_once, other.encode_chunk(*arguments)[0])


def test_a_model_that_was_not_trained_to_stream_refuses_to():
    for settings in (OFFLINE, replace(STREAMING, dynamic_chunk=False)):
        with pytest.raises(OptionError, match="not trained to stream") as caught:
            stream_through(random_model(settings), random_feats(1, 67), 16)
        assert caught.value.code == "streaming_unsupported"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_single_and_reports_its_type(dtype):
    model, single = random_model(dtype=dtype), random_model()
    feats = random_feats(1, 75)

    half = model.ctc_log_probs(full(model, feats, 4))

    assert model.dtype == dtype
    assert half.dtype == torch.float32
    torch.testing.assert_close(
        half, single.ctc_log_probs(full(single, feats, 4)), atol=0.25, rtol=0.0
    )
