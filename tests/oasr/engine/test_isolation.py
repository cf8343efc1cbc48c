"""One bad request ends alone, with its stage named; the others say what they would have said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.engine import ASREngine
from oasr.engine.isolation import ErrorStage, run_isolated
from oasr.engine.request import Request, RequestOutput
from tests.support.engine import make_engine, noise, stream_all, terminal
from tests.support.faults import ERRORS, STAGES, Faults

# One window a forward, so that forwards have the shapes that the tests count on.
WINDOWING = {"chunk_size": 8, "num_left_chunks": 2, "max_chunks_per_step": 1}


def files_of(count: int) -> list[np.ndarray]:
    """Utterances whose lengths make different numbers of windows."""
    return [noise(6_000 + 10_240 * number, number) for number in range(count)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stream_that_fails_at_any_stage_fails_alone(tiny, stage, error):
    audio = [noise(20_000, seed) for seed in range(5)]
    expected = stream_all(make_engine(tiny, **WINDOWING), audio)
    engine = make_engine(tiny, **WINDOWING)
    faults = Faults(engine, error)
    faults.spoil("s3", stage, audio[3])
    for number, samples in enumerate(audio):
        engine.add_streaming_request(f"s{number}")
        engine.feed_chunk(f"s{number}", samples, is_last=True)

    found = terminal(engine.run())

    assert (found["s3"].finish_reason, found["s3"].error_stage) == ("error", STAGES[stage])
    for number in (0, 1, 2, 4):
        assert found[f"s{number}"].tokens == expected[number].tokens
        assert found[f"s{number}"].scores == pytest.approx(expected[number].scores, abs=1e-4)


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"cache"}))
def test_an_utterance_that_fails_at_any_stage_fails_alone(tiny, stage):
    audio = files_of(5)
    expected = make_engine(tiny).transcribe(audio)
    engine = make_engine(tiny)
    faults = Faults(engine, MemoryError())
    faults.spoil("f1", stage, audio[1])
    for number, samples in enumerate(audio):
        engine.add_request(Request(samples, f"f{number}"))

    found = terminal(engine.run())

    assert (found["f1"].finish_reason, found["f1"].error_stage) == ("error", STAGES[stage])
    for number in (0, 2, 3, 4):
        assert found[f"f{number}"].tokens == expected[number].tokens


def test_mates_of_a_row_without_numbers_keep_their_bits(tiny):
    audio = [noise(20_000, seed) for seed in range(4)]
    expected = stream_all(make_engine(tiny, **WINDOWING), audio)
    engine = make_engine(tiny, **WINDOWING)
    faults = Faults(engine, ValueError())
    for number, samples in enumerate(audio):
        engine.add_streaming_request(f"s{number}")
        engine.feed_chunk(f"s{number}", samples[:10_000])
    engine.run()
    faults.spoil("s2", "nan", audio[2])
    for number, samples in enumerate(audio):
        engine.feed_chunk(f"s{number}", samples[10_000:], is_last=True)

    found = terminal(engine.run())

    assert found["s2"].error_stage == "forward"
    for number in (0, 1, 3):
        assert found[f"s{number}"].tokens == expected[number].tokens
    # The window in which it failed still had four rows: these scores are the very same numbers.
    same = sum(frame < 16 for frame in expected[0].token_frames)
    assert any(8 <= frame < 16 for frame in expected[0].token_frames)
    assert found["s0"].scores[:same] == expected[0].scores[:same]


@pytest.mark.parametrize("where", ["encode", "posteriors", "kv", "cnn"])
def test_a_step_that_failed_once_is_repeated_and_says_the_same(tiny, where, monkeypatch):
    audio = [noise(20_000, seed) for seed in range(3)]
    alone = [stream_all(make_engine(tiny, **WINDOWING), [samples])[0] for samples in audio]
    engine = make_engine(tiny, **WINDOWING)
    runner = engine._family.runner
    owner, name = {
        "encode": (tiny.model, "encode_chunk"),
        "posteriors": (tiny.model, "ctc_log_probs"),
        "kv": (runner.kv, "write"),
        "cnn": (runner.caches.cnn, "scatter"),
    }[where]
    work = getattr(owner, name)
    calls = []

    def fails_now_and_then(*arguments, **options):
        calls.append(name)
        if len(calls) in (2, 5):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return work(*arguments, **options)

    monkeypatch.setattr(owner, name, fails_now_and_then)
    found = stream_all(engine, audio)

    assert len(calls) > 5
    for output, expected in zip(found, alone, strict=True):
        assert output.finish_reason == "stop"
        assert output.tokens == expected.tokens
        assert output.scores == pytest.approx(expected.scores, abs=1e-4)


@settings(deadline=None, max_examples=60)
@given(rows=st.integers(1, 33), bad=st.sets(st.integers(0, 32), max_size=4))
def test_the_items_that_raise_are_found_by_halves(rows, bad):
    calls = []

    def run(items):
        calls.append(len(items))
        if bad & set(items):
            raise RuntimeError
        return [10 * item for item in items]

    found = run_isolated(ErrorStage.FORWARD, run, range(rows))

    assert found == [None if item in bad else 10 * item for item in range(rows)]
    assert len(calls) <= 1 + 2 * len(bad) * rows.bit_length()


class Life:
    """Random requests to an engine, some of which have a fault, and what became of them."""

    def __init__(self, engine: ASREngine, faults: Faults, data: st.DataObject) -> None:
        self.engine, self.faults, self._data = engine, faults, data
        self.audio: dict[str, np.ndarray] = {}  # of every accepted id
        self.fed: dict[str, int] = {}  # samples, of the streams that may be fed
        self.aborted: set[str] = set()
        self.outputs: list[RequestOutput] = []

    def stream(self, number: int) -> None:
        name = f"stream{number}"
        self.audio[name] = self._audio(name, noise(20_000, number))
        self.engine.add_streaming_request(name, number % 3, tenant=f"t{number % 2}")
        self.fed[name] = 0

    def file(self, number: int) -> None:
        name = f"file{number}"
        self.audio[name] = self._audio(name, noise(5_120 * (number + 1) - 100, number))
        self.engine.add_request(Request(self.audio[name], name, priority=number % 3))

    def step(self, _: int) -> None:
        self.outputs += self.engine.step()
        for output in self.outputs:
            if output.finished:
                self.fed.pop(output.request_id, None)

    def abort(self, _: int) -> None:
        if self.audio:
            name = self._data.draw(st.sampled_from(sorted(self.audio)))
            if self.engine.abort_request(name):
                self.aborted.add(name)
                self.fed.pop(name, None)

    def feed(self, _: int) -> None:
        if self.fed:
            name = self._data.draw(st.sampled_from(sorted(self.fed)))
            begin = self.fed[name]
            self.fed[name] = begin + 4_000
            self.engine.feed_chunk(name, self.audio[name][begin : begin + 4_000])

    def end(self, _: int) -> None:
        if self.fed:
            name = self._data.draw(st.sampled_from(sorted(self.fed)))
            begin = self.fed.pop(name)
            self.engine.feed_chunk(name, self.audio[name][begin:], is_last=True)

    def finish(self) -> dict[str, RequestOutput]:
        while self.fed:
            self.end(0)
        self.outputs += self.engine.run()
        return terminal(self.outputs)

    def _audio(self, name: str, samples: np.ndarray) -> np.ndarray:
        if self._data.draw(st.integers(0, 2)) == 0:
            self.faults.spoil(name, self._data.draw(st.sampled_from(sorted(STAGES))), samples)
        return samples


@settings(deadline=None, max_examples=50)
@given(
    error=st.sampled_from(ERRORS),
    slots=st.integers(1, 4),
    spare_blocks=st.integers(0, 4),
    max_windows=st.sampled_from([None, 1]),
    fairness=st.booleans(),
    data=st.data(),
)
def test_every_accepted_id_ends_in_exactly_one_terminal_output(
    tiny, error, slots, spare_blocks, max_windows, fairness, data
):
    engine = make_engine(
        tiny,
        max_batch_size=slots,
        max_num_blocks=3 + spare_blocks,
        max_wait_time=data.draw(st.sampled_from([0.0, 60.0])),
        tenant_fairness=fairness,
        **WINDOWING | {"max_chunks_per_step": max_windows},
    )
    faults = Faults(engine, error)
    life = Life(engine, faults, data)
    actions = st.sampled_from(["stream", "file", "feed", "feed", "end", "abort", "step"])
    for number in range(data.draw(st.integers(1, 30))):
        getattr(life, data.draw(actions))(number)

    found = life.finish()

    assert found.keys() == life.audio.keys()
    for name, output in found.items():
        stage = faults.stages.get(name)
        if name in life.aborted:
            assert output.finish_reason == "abort"
        elif stage is None or (stage == "cache" and name.startswith("file")):
            expected = alone(tiny, name, life.audio[name])
            assert (output.finish_reason, output.tokens) == ("stop", expected)
        else:
            assert (output.finish_reason, output.error_stage) == ("error", STAGES[stage])
    caches = engine._family.runner.caches
    assert (caches.kv.pool.num_used, caches.slots.num_used, caches.parked_bytes) == (0, 0, 0)
    assert not engine._scheduler.has_pending()
    assert not engine._in_flight
    assert not engine.has_work


def alone(tiny, name: str, samples: np.ndarray) -> tuple[int, ...]:
    engine = make_engine(tiny, **WINDOWING)
    if name.startswith("file"):
        return engine.transcribe([samples])[0].tokens
    return stream_all(engine, [samples])[0].tokens
