"""The bundled model's stated error rates of prefix beam search, under every chunk mask."""

from __future__ import annotations

import pytest
import torch

from oasr.decoding.ctc_prefix_beam import PrefixBeamDecoder, TopTokens, advance_all, top_tokens
from oasr.decoding.wer import Wer
from oasr.engine.families import BUNDLED_MODEL
from oasr.models.registry import LoadedModel, load_model
from tests.support.testsets import WORDS, FeatureBatch, feature_batches

# (chunk size, left chunks) → percent, from the README of the model
STATED = {
    "human_digits": {(-1, -1): 4.7, (16, -1): 5.5, (16, 4): 5.9, (4, -1): 6.2},
    "phrases": {(-1, -1): 7.4, (16, -1): 8.3, (16, 4): 8.3, (4, -1): 10.2},
}


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load_model(BUNDLED_MODEL, "cpu", torch.float32)


def transcribe(loaded: LoadedModel, batch: FeatureBatch, view: tuple[int, int]) -> list[str]:
    with torch.inference_mode():
        enc, lengths = loaded.model.encode_full(batch.features, batch.frames, *view)
        tokens, values = top_tokens(loaded.model.ctc_log_probs(enc), 10)
    ends = lengths.tolist()
    decoders = [PrefixBeamDecoder(loaded.settings.blank_id) for _ in ends]
    rows = [TopTokens(t[:n], v[:n]) for t, v, n in zip(tokens, values, ends, strict=True)]
    advance_all(decoders, rows, [0] * len(rows))
    return [loaded.tokenizer.decode(decoder.tokens) for decoder in decoders]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STATED))
def test_the_error_rates_of_the_readme_are_met_within_two_words(bundled, name):
    prepared = feature_batches(name)
    found = {}
    for view in STATED[name]:
        wer = Wer()
        for batch in prepared:
            heard = transcribe(bundled, batch, view)
            for reference, hypothesis in zip(batch.texts, heard, strict=True):
                wer.add(reference, hypothesis)
        assert wer.words == WORDS[name]
        found[view] = wer.errors

    stated = {view: percent * WORDS[name] / 100 for view, percent in STATED[name].items()}
    assert found == {view: pytest.approx(errors, abs=2.0) for view, errors in stated.items()}
