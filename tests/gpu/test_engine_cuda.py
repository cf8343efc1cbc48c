"""The engine on a CUDA device says what it says on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from oasr.decoding.wer import Wer
from oasr.engine.engine import ASREngine
from tests.support.engine import Samples, make_bundled_engine, noise, stream_all

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

PHRASES = Path(__file__).parents[1] / "data" / "testsets" / "phrases"


def phrases() -> tuple[list[Samples], list[str]]:
    entries = json.loads((PHRASES / "reference.json").read_text())
    audio = [soundfile.read(PHRASES / e["file"], dtype="float32")[0] for e in entries]
    return audio, [entry["text"] for entry in entries]


def make_engine(device: str, dtype: str = "float32", **settings: object) -> ASREngine:
    return make_bundled_engine(device=device, dtype=dtype, num_left_chunks=4, **settings)


def word_errors(engine: ASREngine, streamed: bool) -> int:
    audio, references = phrases()
    outputs = stream_all(engine, audio) if streamed else engine.transcribe(audio)
    wer = Wer()
    for reference, output in zip(references, outputs, strict=True):
        wer.add(reference, output.text)
    return wer.errors


@pytest.mark.parametrize("streamed", [True, False])
def test_single_precision_equals_the_cpu(streamed):
    audio = phrases()[0][:24]
    cpu, cuda = make_engine("cpu"), make_engine("cuda")
    expected = stream_all(cpu, audio) if streamed else cpu.transcribe(audio)

    found = stream_all(cuda, audio) if streamed else cuda.transcribe(audio)

    assert [o.text for o in found] == [o.text for o in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.token_frames == other.token_frames
        assert one.scores == pytest.approx(other.scores, abs=2e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("streamed", [True, False])
def test_half_precision_costs_few_words(dtype, streamed):
    single = word_errors(make_engine("cuda"), streamed)

    assert abs(word_errors(make_engine("cuda", dtype), streamed) - single) <= 4


def test_streamed_equals_the_full_forward_under_the_chunk_mask():
    audio = phrases()[0][:40]
    engine = make_engine("cuda", offline_chunk_size=16)

    streamed = stream_all(engine, audio)

    assert [o.text for o in streamed] == [o.text for o in engine.transcribe(audio)]


def test_a_bad_stream_fails_alone():
    audio = phrases()[0][:3]
    spoilt = noise(30_000, 1)
    spoilt[20_000] = np.nan
    engine = make_engine("cuda")

    *good, failed = stream_all(engine, [*audio, spoilt])

    assert failed.error_stage == "input"
    assert [o.text for o in good] == [o.text for o in stream_all(make_engine("cuda"), audio)]


def test_the_memory_of_many_long_streams_stays_flat():
    engine = make_engine("cuda", max_batch_size=64)
    ids = [engine.add_streaming_request() for _ in range(64)]
    sizes = set()
    for turn in range(30):
        for seed, request_id in enumerate(ids):
            engine.feed_chunk(request_id, noise(20_480, seed))
        engine.run()
        if turn >= 10:
            torch.cuda.synchronize()
            sizes.add(torch.cuda.memory_allocated() // 2**20)

    assert max(sizes) - min(sizes) <= 8
