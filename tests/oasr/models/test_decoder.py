"""Attention decoders against WeNet's formulae, one token at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import oasr
from oasr.models.conformer import attention, decoder
from oasr.models.conformer.decoder import AttentionDecoder
from oasr.models.conformer.settings import DecoderSettings
from oasr.models.conformer.weights import decoder_shapes
from oasr.models.registry import load_model
from tests.support.conformers import STREAMING
from tests.support.decoders import naive_log_probs, random_weights

BUNDLED = Path(oasr.__file__).parent / "assets/callcenter-en-tiny"
BOTH = replace(STREAMING, decoder=DecoderSettings(4, 24, 2, 1, bidirectional=True))
LEFT = replace(STREAMING, decoder=DecoderSettings(2, 24, 2, 0, bidirectional=False))
LISTED = replace(BOTH, sos=2, eos=3)
WITHOUT_RIGHT_BLOCKS = replace(BOTH, decoder=DecoderSettings(4, 24, 1, 0, bidirectional=True))
HYPOTHESES = [(3, 1, 4, 1, 5), (), (2,), (7, 7, 7, 8, 9, 2, 6), (3, 1, 4, 1, 6)]


@pytest.fixture(scope="module", autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def frames(count: int = 9) -> torch.Tensor:
    return torch.randn(count, 16, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [
        (LEFT, "decoder."),
        (BOTH, "decoder.left_decoder."),
        (LISTED, "decoder.left_decoder."),
    ],
    ids=["transformer", "bitransformer", "listed-tokens"],
)
def test_tokens_and_end_are_as_likely_as_the_published_formulae_say(settings, prefix):
    weights = random_weights(settings)

    found = AttentionDecoder.from_weights(settings, weights).log_probs(HYPOTHESES, frames())

    assert found.shape == (5, 8)
    for row, tokens in zip(found.numpy(), HYPOTHESES, strict=True):
        expected = naive_log_probs(settings, weights, tokens, frames(), prefix)
        np.testing.assert_allclose(row[: len(tokens) + 1], expected, atol=1e-4)
        assert not row[len(tokens) + 1 :].any()


@pytest.mark.parametrize("settings", [BOTH, LISTED, WITHOUT_RIGHT_BLOCKS])
def test_backwards_is_the_right_decoder_on_the_mirrored_text_told_in_reading_order(settings):
    weights = random_weights(settings)

    found = AttentionDecoder.from_weights(settings, weights).log_probs(
        HYPOTHESES, frames(), backwards=True
    )

    for row, tokens in zip(found.numpy(), HYPOTHESES, strict=True):
        *mirrored, end = naive_log_probs(
            settings, weights, tokens[::-1], frames(), "decoder.right_decoder."
        )
        np.testing.assert_allclose(row[: len(tokens) + 1], [*mirrored[::-1], end], atol=1e-4)
        assert not row[len(tokens) + 1 :].any()


def test_small_groups_and_blocks_give_what_one_forward_gives(monkeypatch):
    scorer = AttentionDecoder.from_weights(BOTH, random_weights(BOTH))
    at_once = scorer.log_probs(HYPOTHESES, frames())

    monkeypatch.setattr(decoder, "TOKENS_PER_FORWARD", 16)
    monkeypatch.setattr(decoder, "TOKENS_PER_PROJECTION", 3)
    monkeypatch.setattr(decoder, "SCORES_PER_BLOCK", 4 * 9 * 2)

    torch.testing.assert_close(scorer.log_probs(HYPOTHESES, frames()), at_once, atol=1e-4, rtol=0)
    assert attention.SCORES_PER_BLOCK != decoder.SCORES_PER_BLOCK


def test_no_hypotheses_have_no_rows():
    scorer = AttentionDecoder.from_weights(LEFT, random_weights(LEFT))

    assert scorer.log_probs([], frames()).shape == (0, 1)


def test_the_bundled_decoder_is_used_as_it_was_loaded():
    loaded = load_model(BUNDLED, "cpu", torch.float32)
    scorer = AttentionDecoder.from_weights(loaded.settings, loaded.decoder_weights)
    encoded = torch.randn(7, 144, generator=torch.Generator().manual_seed(3))

    found = scorer.log_probs([(12, 200, 9)], encoded)

    expected = naive_log_probs(
        loaded.settings,
        loaded.decoder_weights,
        (12, 200, 9),
        encoded,
        "decoder.left_decoder.",
    )
    np.testing.assert_allclose(found[0], expected, atol=1e-3)
    assert scorer.bidirectional
    assert not any(parameter.requires_grad for parameter in scorer.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_single(dtype):
    weights = random_weights(BOTH)
    halves = {name: value.to(dtype) for name, value in weights.items()}

    half = AttentionDecoder.from_weights(BOTH, halves).log_probs(HYPOTHESES, frames().to(dtype))

    single = AttentionDecoder.from_weights(BOTH, weights).log_probs(HYPOTHESES, frames())
    torch.testing.assert_close(half, single, atol=0.3, rtol=0.0)


def test_names_and_shapes_are_the_toolkits():
    both, left = decoder_shapes(BOTH), decoder_shapes(LEFT)

    assert both["decoder.left_decoder.embed.0.weight"] == (11, 16)
    assert both["decoder.right_decoder.decoders.0.feed_forward.w_1.weight"] == (24, 16)
    assert both["decoder.left_decoder.decoders.1.src_attn.linear_out.bias"] == (16,)
    assert "decoder.right_decoder.decoders.1.norm1.weight" not in both
    assert left["decoder.output_layer.weight"] == (11, 16)
    # per direction: embedding, last norm and output layer; 26 of each block
    assert (len(left), len(both)) == (5 + 2 * 26, 2 * 5 + 3 * 26)
