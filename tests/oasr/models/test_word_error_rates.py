"""The bundled model's stated word error rates, from whole-file features and the chunk mask.

Greedy, and with the readings of a beam in the order of the attention decoder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import soundfile
import torch
from torch import Tensor

import oasr
from oasr.decoding.ctc_greedy import GreedyDecoder, best_path
from oasr.decoding.ctc_prefix_beam import PrefixBeamDecoder, top_tokens
from oasr.decoding.rescoring import rescore
from oasr.decoding.wer import Wer
from oasr.features.fbank import Fbank
from oasr.models.conformer.decoder import AttentionDecoder
from oasr.models.registry import LoadedModel, load_model

BUNDLED = Path(oasr.__file__).parent / "assets/callcenter-en-tiny"
TESTSETS = Path(__file__).parents[2] / "data/testsets"
FILES_PER_BATCH = 20

# (chunk size, left chunks) → percent, from the README of the model
STATED = {
    "human_digits": {(-1, -1): 4.5, (16, -1): 5.9, (16, 4): 6.2, (4, -1): 5.7},
    "phrases": {(-1, -1): 7.0, (16, -1): 8.4, (16, 4): 8.4, (4, -1): 11.0},
}
STATED_RESCORED = {
    "human_digits": {(-1, -1): 3.1, (16, -1): 4.3, (16, 4): 4.0, (4, -1): 5.5},
    "phrases": {(-1, -1): 4.7, (16, -1): 4.7, (16, 4): 4.7, (4, -1): 6.0},
}
BEAM, CTC_WEIGHT = 10, 0.5
WORDS = {"human_digits": 422, "phrases": 618}


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load_model(BUNDLED, "cpu", torch.float32)


def batches(name: str) -> list[tuple[list[str], torch.Tensor, torch.Tensor]]:
    """(texts, features, frame counts), files of like lengths together."""
    entries = json.loads((TESTSETS / name / "reference.json").read_text(encoding="utf-8"))
    files = [
        (
            torch.from_numpy(soundfile.read(TESTSETS / name / e["file"], dtype="float32")[0]),
            e["text"],
        )
        for e in entries
    ]
    files.sort(key=lambda file: file[0].numel())
    fbank, result = Fbank(), []
    for first in range(0, len(files), FILES_PER_BATCH):
        waves, texts = zip(*files[first : first + FILES_PER_BATCH], strict=True)
        lengths = torch.tensor([wave.numel() for wave in waves])
        padded = torch.nn.utils.rnn.pad_sequence(list(waves), batch_first=True)
        result.append((list(texts), *fbank(padded, lengths)))
    return result


def posteriors(
    loaded: LoadedModel, feats: Tensor, counts: Tensor, view: tuple[int, int]
) -> list[tuple[Tensor, Tensor]]:
    """Encoder frames (T, D) and log posteriors (T, vocab) of each file."""
    with torch.inference_mode():
        enc, lengths = loaded.model.encode_full(feats, counts, *view)
        log_probs = loaded.model.ctc_log_probs(enc)
    return [(enc[row, :n], log_probs[row, :n]) for row, n in enumerate(lengths.tolist())]


def greedy(loaded: LoadedModel, log_probs: Tensor) -> list[int]:
    decoder = GreedyDecoder(loaded.settings.blank_id)
    ids, scores = best_path(log_probs[None])
    decoder.update(ids[0], scores[0], first_frame=0)
    return decoder.tokens


def rescored(
    loaded: LoadedModel, scorer: AttentionDecoder, encoded: Tensor, log_probs: Tensor
) -> Sequence[int]:
    search = PrefixBeamDecoder(loaded.settings.blank_id, BEAM, BEAM)
    search.update(top_tokens(log_probs, BEAM), 0)
    nbest = [(reading.tokens, reading.score) for reading in search.hypotheses(BEAM)]
    with torch.inference_mode():
        best = rescore(scorer, nbest, encoded, CTC_WEIGHT, loaded.settings.reverse_weight)[0]
    return nbest[best.place][0]


def assert_stated(found: dict[tuple[int, int], Wer], stated: dict[tuple[int, int], float]) -> None:
    """Within two words of what the model's README states in percent."""
    errors = {view: percent * found[view].words / 100 for view, percent in stated.items()}
    assert {view: wer.errors for view, wer in found.items()} == {
        view: pytest.approx(count, abs=2.0) for view, count in errors.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(STATED))
def test_the_error_rates_of_the_readme_are_met_within_two_words(bundled, name):
    scorer = AttentionDecoder.from_weights(bundled.settings, bundled.decoder_weights)
    prepared = batches(name)
    greedy_wers = {view: Wer() for view in STATED[name]}
    rescored_wers = {view: Wer() for view in STATED_RESCORED[name]}
    for view in STATED[name]:
        for texts, feats, counts in prepared:
            heard = posteriors(bundled, feats, counts, view)
            for reference, (encoded, log_probs) in zip(texts, heard, strict=True):
                tokens = greedy(bundled, log_probs)
                greedy_wers[view].add(reference, bundled.tokenizer.decode(tokens))
                tokens = rescored(bundled, scorer, encoded, log_probs)
                rescored_wers[view].add(reference, bundled.tokenizer.decode(tokens))
        assert greedy_wers[view].words == rescored_wers[view].words == WORDS[name]

    assert_stated(greedy_wers, STATED[name])
    assert_stated(rescored_wers, STATED_RESCORED[name])
