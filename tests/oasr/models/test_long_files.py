"""Files and streams of any length: positions past WeNet's table, and memory that stays linear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oasr.models.conformer import attention
from oasr.models.conformer.attention import BlockwiseAttend, ChunkMask
from tests.support.conformers import (
    STREAMING,
    VARIANTS,
    naive_forward,
    random_feats,
    random_model,
    stream_through,
)

TABLE_OF_THE_TOOLKIT = 5_000  # encoder frames
AN_HOUR = 90_000
TEN_MINUTES = 15_000  # encoder frames at 40 ms
TOLERANCE = {"atol": 1e-4, "rtol": 0.0}
CLEAR_REFS = Path("/proc/self/clear_refs")


@pytest.fixture(scope="module", autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def memory_kib(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


@pytest.mark.parametrize("name", ["conformer", "transformer"])
@pytest.mark.parametrize("first", [TABLE_OF_THE_TOOLKIT + 1_000, AN_HOUR, 24 * AN_HOUR])
def test_positions_past_the_toolkits_table_follow_the_same_formula(name, first):
    settings = VARIANTS.get(name, STREAMING)
    model = random_model(settings)
    feats = random_feats(1, settings.window_frames(16))
    kv, cnn = torch.zeros(2, 1, 4, 0, 8), torch.zeros(2, 1, 16, settings.kernel - 1)

    enc, _, _ = model.encode_chunk(
        feats, torch.tensor([first]), kv, cnn, torch.ones(1, 0, dtype=torch.bool)
    )

    expected = naive_forward(model, feats[0], first_position=first)
    torch.testing.assert_close(enc[0], expected, **TOLERANCE)
    assert not torch.allclose(enc[0], naive_forward(model, feats[0]), atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conformer", "transformer"])
def test_a_stream_past_the_toolkits_table_is_the_masked_whole(name):
    settings = replace(VARIANTS.get(name, STREAMING), num_blocks=1)
    model = random_model(settings)
    feats = random_feats(1, settings.window_frames(TABLE_OF_THE_TOOLKIT + 400))

    streamed = stream_through(model, feats, 25, 2)

    lengths = torch.tensor([feats.shape[1]])
    whole, _ = model.encode_full(feats, lengths, 25, 2)
    assert streamed.shape[1] == TABLE_OF_THE_TOOLKIT + 400
    torch.testing.assert_close(streamed, whole, **TOLERANCE)


@pytest.mark.slow
@pytest.mark.skipif(not CLEAR_REFS.exists(), reason="peak memory is read from Linux' /proc")
@pytest.mark.parametrize("chunk", [-1, 16])
def test_ten_minutes_take_the_memory_of_a_few_blocks_of_scores(monkeypatch, chunk):
    monkeypatch.setattr(attention, "SCORES_PER_BLOCK", 1 << 20)  # 4 MiB; all at once: 3.4 GiB
    q, keys, values = torch.randn(3, 1, 4, TEN_MINUTES, 8)
    attend = BlockwiseAttend(ChunkMask(chunk, -1), padding=None)
    scores = torch.randn(4, TEN_MINUTES)
    CLEAR_REFS.write_text("5")  # the peak starts anew
    before = memory_kib("VmRSS")

    context = attend(scores, q, keys, values)

    assert memory_kib("VmHWM") - before < 12 * 4 * 1024
    row = 12_345
    stop = TEN_MINUTES if chunk < 0 else (row // chunk + 1) * chunk
    weights = (q[0, :, row, None] * keys[0, :, :stop]).sum(-1) / 8**0.5 + scores[:, :stop]
    expected = (weights.softmax(-1)[..., None] * values[0, :, :stop]).sum(1)
    torch.testing.assert_close(context[0, :, row], expected, **TOLERANCE)
