"""Results that hang on less than what the shape of a batch may change are counted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import Request, RequestOutput
from tests.support.engine import make_engine, noise, tiny_model


def drained(margin: float, search: str, monkeypatch: pytest.MonkeyPatch) -> list[RequestOutput]:
    """Finals of a stream and of a file: in each frame two tokens lie `margin` from each other."""

    def two_lead(encoded: Tensor) -> Tensor:
        log_probs = torch.full((*encoded.shape[:2], 12), -30.0)
        log_probs[..., 0] = 10.0
        log_probs[:, 1::4, 0] = -30.0
        log_probs[:, 1::4, 3] = 10.0
        log_probs[:, 1::4, 4] = 10.0 - margin
        return log_probs.log_softmax(-1)

    loaded = tiny_model()
    monkeypatch.setattr(loaded.model, "ctc_log_probs", two_lead)
    engine = make_engine(loaded)
    decoding = DecodingOptions(search)
    stream = engine.add_streaming_request(decoding=decoding)
    engine.feed_chunk(stream, noise(24_000, 1), is_last=True)
    engine.add_request(Request(audio=noise(11_200, 2), decoding=decoding))
    outputs, near_ties = [], 0
    while engine.has_work:
        outputs += [output for output in engine.step() if output.finished]
        near_ties += engine.stats.near_ties
    assert near_ties == sum(output.near_tie for output in outputs)
    assert [output.finish_reason for output in outputs] == ["stop", "stop"]
    return outputs


@pytest.mark.parametrize("search", ["greedy", "prefix_beam"])
@pytest.mark.parametrize(("margin", "is_near"), [(5e-4, True), (2e-3, False)])
def test_a_reading_that_is_as_good_as_another_is_counted(
    search: str, margin: float, is_near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = drained(margin, search, monkeypatch)

    assert [output.near_tie for output in outputs] == [is_near, is_near]
    assert all(set(output.tokens) == {3} for output in outputs)
