"""The life of requests: every accepted id ends in exactly one terminal output."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.engine import ASREngine
from oasr.engine.request import Request
from oasr.errors import OptionError
from tests.support.engine import (
    FaultyModel,
    make_engine,
    noise,
    stream_all,
    terminal,
    tiny_model,
)

LOUD = 26.3  # log energy that only `loud` audio reaches


def loud(samples: int) -> np.ndarray:
    return (np.sin(np.arange(samples) * 0.2) * 0.99).astype(np.float32)


def make_faulty(loaded, **settings) -> ASREngine:
    engine = make_engine(loaded, **settings)
    engine._family.runner._model = FaultyModel(loaded.model, LOUD)
    return engine


def held(engine: ASREngine) -> tuple[int, int, int]:
    """KV blocks, slots and ids that are in use."""
    runner = engine._family.runner
    return runner.kv.pool.num_used, runner.caches.slots.num_used, len(engine._scheduler._index)


def test_offline_and_streams_share_a_step(tiny):
    engine = make_engine(tiny)
    stream = engine.add_streaming_request()
    utterance = engine.add_request(Request(audio=noise(20_000, 1)))
    engine.feed_chunk(stream, noise(20_000, 1), is_last=True)

    found = terminal(engine.step())

    assert {o.finish_reason for o in found.values()} == {"stop"}
    assert found.keys() == {stream, utterance}
    assert not engine.has_work


def test_whole_utterances_say_the_same_alone_and_together(tiny):
    utterances = [noise(8_000 + 3_000 * seed, seed) for seed in range(7)]
    alone = [make_engine(tiny).transcribe([audio])[0] for audio in utterances]

    together = make_engine(tiny).transcribe(utterances)

    for one, other in zip(alone, together, strict=True):
        assert (one.tokens, one.token_frames) == (other.tokens, other.token_frames)
        assert one.scores == pytest.approx(other.scores, abs=1e-4)


def test_a_batch_over_max_batch_frames_is_split_and_comes_back_whole(tiny):
    utterances = [noise(8_000 + 3_000 * seed, seed) for seed in range(7)]
    settings = {"schedule_policy": "fcfs", "max_batch_frames": 250}
    expected = make_engine(tiny).transcribe(utterances)

    found = make_engine(tiny, **settings).transcribe(utterances)

    assert [o.tokens for o in found] == [o.tokens for o in expected]


def test_a_running_stream_waits_for_one_micro_batch_at_most(tiny):
    engine = make_engine(tiny, schedule_policy="fcfs", max_batch_frames=150)
    engine.add_streaming_request("live")
    ids = {engine.add_request(Request(audio=noise(20_000, seed))) for seed in range(3)}

    steps = []
    while engine.has_work:
        steps.append(engine.step())

    assert [len(outputs) for outputs in steps] == [1, 1, 1]
    assert terminal(o for outputs in steps for o in outputs).keys() == ids


def test_an_utterance_scheduled_and_not_yet_forwarded_can_be_aborted(tiny):
    engine = make_engine(tiny, schedule_policy="fcfs", max_batch_frames=150)
    engine.add_streaming_request("live")
    for name in "abc":
        engine.add_request(Request(audio=noise(20_000, 1), request_id=name))
    (first,) = engine.step()
    left = [name for name in "abc" if name != first.request_id]
    with pytest.raises(ValueError, match="in use"):
        engine.add_request(Request(audio=noise(20_000, 1), request_id=left[0]))

    assert engine.abort_request(left[0])
    found = terminal(engine.run())

    assert found[left[0]].finish_reason == "abort"
    assert found[left[1]].finish_reason == "stop"


def test_feeding_an_unknown_or_finished_stream_is_a_key_error(tiny):
    engine = make_engine(tiny)
    engine.add_streaming_request("a")
    engine.feed_chunk("a", noise(100, 1), is_last=True)
    with pytest.raises(ValueError, match="last chunk"):
        engine.feed_chunk("a", noise(100, 1))
    engine.run()

    for name in ("a", "b"):
        with pytest.raises(KeyError):
            engine.feed_chunk(name, noise(100, 1))


def test_an_utterance_cannot_be_fed(tiny):
    engine = make_engine(tiny)
    name = engine.add_request(Request(audio=noise(100, 1)))

    with pytest.raises(KeyError):
        engine.feed_chunk(name, noise(100, 1))


def test_keep_samples_needs_the_last_chunk(tiny):
    engine = make_engine(tiny)
    engine.add_streaming_request("a")

    with pytest.raises(ValueError, match="keep_samples"):
        engine.feed_chunk("a", noise(100, 1), keep_samples=50)


def test_an_abort_is_reported_once_by_the_next_step(tiny):
    engine = make_engine(tiny)
    engine.add_streaming_request("waiting")
    assert engine.abort_request("waiting")
    assert not engine.abort_request("waiting")
    assert engine.has_work

    (output,) = engine.step()

    assert (output.request_id, output.finish_reason, output.finished) == ("waiting", "abort", True)
    assert engine.step() == []
    assert held(engine) == (0, 0, 0)


def test_a_model_that_cannot_stream_refuses_streams():
    engine = make_engine(tiny_model(causal=False))

    with pytest.raises(OptionError) as refused:
        engine.add_streaming_request()

    assert refused.value.code == "streaming_unsupported"
    assert engine.transcribe([noise(9_000, 1)])[0].finish_reason == "stop"


def test_another_sample_rate_is_refused(tiny):
    with pytest.raises(OptionError, match="16000"):
        make_engine(tiny).add_request(Request(audio=noise(800, 1), sample_rate=8000))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_stream_that_is_not_finite_fails_alone(tiny, bad):
    good = [noise(30_000, seed) for seed in range(3)]
    expected = stream_all(make_engine(tiny), good)
    spoilt = noise(30_000, 9)
    spoilt[17_000] = bad
    engine = make_engine(tiny)

    *found, failed = stream_all(engine, [*good, spoilt])

    assert (failed.finish_reason, failed.error_stage) == ("error", "input")
    assert [o.tokens for o in found] == [o.tokens for o in expected]
    assert held(engine) == (0, 0, 0)


def test_an_utterance_that_is_not_finite_fails_alone(tiny):
    good, spoilt = noise(30_000, 1), np.full(30_000, np.nan, dtype=np.float32)

    found, failed = make_engine(tiny).transcribe([good, spoilt])

    assert (failed.finish_reason, failed.error_stage) == ("error", "input")
    assert found.tokens == make_engine(tiny).transcribe([good])[0].tokens


def test_a_model_that_gives_no_number_for_a_row_fails_that_row(tiny, monkeypatch):
    engine = make_engine(tiny)
    log_probs = tiny.model.ctc_log_probs

    def with_a_nan(encoded):
        found = log_probs(encoded)
        found[0] = float("nan")
        return found

    monkeypatch.setattr(tiny.model, "ctc_log_probs", with_a_nan)
    first, second = stream_all(engine, [noise(2_000, 1), noise(2_000, 2)])

    assert (first.finish_reason, first.error_stage) == ("error", "forward")
    assert second.finish_reason == "stop"


@pytest.mark.parametrize("kind", ["stream", "utterance"])
def test_a_row_that_makes_the_forward_raise_fails_alone(tiny, kind):
    audios = [noise(30_000, 1), loud(30_000), noise(30_000, 2)]
    run = (lambda e, a: stream_all(e, a)) if kind == "stream" else (lambda e, a: e.transcribe(a))
    expected = run(make_engine(tiny), audios)

    found = run(make_faulty(tiny), audios)

    assert (found[1].finish_reason, found[1].error_stage) == ("error", "forward")
    assert [found[i].tokens for i in (0, 2)] == [expected[i].tokens for i in (0, 2)]
    assert [found[i].scores for i in (0, 2)] == [
        pytest.approx(expected[i].scores, abs=1e-4) for i in (0, 2)
    ]


def test_a_search_that_raises_fails_its_stream_alone(tiny):
    engine = make_engine(tiny)
    ids = [engine.add_streaming_request() for _ in range(2)]
    engine.step()
    engine._scheduler.find_request(ids[0]).stream_context.decoder = None
    for request_id in ids:
        engine.feed_chunk(request_id, noise(5_000, 1), is_last=True)

    found = terminal(engine.run())

    assert found[ids[0]].error_stage == "decode"
    assert found[ids[1]].finish_reason == "stop"


def test_a_full_cache_ends_the_stream_that_finds_no_room_and_no_other(tiny):
    engine = make_engine(tiny, max_num_blocks=8)
    audios = [noise(30_000, 1), noise(150_000, 2)]
    expected = stream_all(make_engine(tiny), audios)

    short, long = stream_all(engine, audios)

    assert short.finish_reason == "stop"
    assert short.tokens == expected[0].tokens
    assert (long.finish_reason, long.error_stage) == ("error", "cache")
    assert 0 < long.decoded_samples < 150_000
    assert held(engine) == (0, 0, 0)


def test_more_open_streams_than_slots_all_finish(tiny):
    engine = make_engine(tiny, max_batch_size=2, chunk_size=4)
    audios = [noise(12_000, seed) for seed in range(9)]
    expected = [stream_all(make_engine(tiny, chunk_size=4), [audio])[0] for audio in audios]
    ids = [engine.add_streaming_request() for _ in audios]
    outputs = []
    for begin in range(0, 12_000, 1_500):  # all of them stay open to the last round
        for request_id, audio in zip(ids, audios, strict=True):
            piece = audio[begin : begin + 1_500]
            engine.feed_chunk(request_id, piece, is_last=begin + 1_500 >= 12_000)
        outputs += engine.run()

    found = terminal(outputs)

    assert [found[i].tokens for i in ids] == [o.tokens for o in expected]
    assert held(engine) == (0, 0, 0)


def test_a_parked_stream_can_be_aborted(tiny):
    engine = make_engine(tiny, max_batch_size=1)
    for name in ("idle", "busy"):
        engine.add_streaming_request(name)
    engine.feed_chunk("idle", noise(20_000, 1))
    engine.run()
    engine.feed_chunk("busy", noise(20_000, 1))
    engine.run()
    assert engine.stats.parked == 1

    assert engine.abort_request("idle")

    assert [o.finish_reason for o in engine.step()] == ["abort"]
    assert held(engine)[1:] == (1, 1)


def test_blocks_and_slots_return_after_thousands_of_short_streams(tiny):
    engine = make_engine(tiny, num_left_chunks=2, max_batch_size=64)
    audio = noise(2_000, 1)
    sizes = set()
    for _ in range(40):
        ids = [engine.add_streaming_request() for _ in range(64)]
        for number, request_id in enumerate(ids):
            engine.feed_chunk(request_id, audio, is_last=number % 2 == 0)
        engine.step()
        for request_id in ids[1::2]:
            assert engine.abort_request(request_id)
        engine.step()
        assert held(engine) == (0, 0, 0)
        sizes.add((engine._family.runner.kv.nbytes, engine._family.runner.caches.slots.num_blocks))

    assert len(sizes) == 1


def test_a_long_stream_with_bounded_history_stays_flat(tiny):
    engine = make_engine(tiny, num_left_chunks=4)
    engine.add_streaming_request("long")
    audio = noise(160_000, 1)
    sizes, used = set(), set()
    for turn in range(40):
        engine.feed_chunk("long", audio)
        engine.step()
        if turn:
            sizes.add(engine._family.runner.kv.nbytes)
            used.add(engine.stats.kv_blocks_used)
            assert engine.stats.kv_blocks * engine.stats.kv_block_bytes in sizes

    assert len(sizes) == 1
    assert max(used) <= 5


@pytest.mark.slow
def test_ten_minutes_in_one_request_are_decoded(tiny):
    audio = np.tile(noise(160_000, 1), 60)

    (output,) = make_engine(tiny).transcribe([audio])

    assert output.finish_reason == "stop"
    assert output.decoded_samples == 9_600_000
    assert output.token_frames[-1] > 14_000


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_accepted_id_ends_in_exactly_one_terminal_output(tiny, data):
    engine = make_faulty(
        tiny,
        max_batch_size=data.draw(st.integers(1, 4)),
        max_num_blocks=data.draw(st.sampled_from([None, 3])),
        chunk_size=8,
        max_wait_time=0.0,
    )
    opened: dict[str, bool] = {}  # id → may still be fed
    outputs = []
    for number in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["stream", "file", "feed", "end", "abort", "step"]))
        audio = loud(6_000) if data.draw(st.integers(0, 5)) == 0 else noise(6_000, number)
        live = [name for name, open_ in opened.items() if open_]
        if action == "stream":
            opened[engine.add_streaming_request(f"s{number}")] = True
        elif action == "file":
            opened[engine.add_request(Request(audio=audio, request_id=f"f{number}"))] = False
        elif action == "step":
            outputs += engine.step()
            opened.update((o.request_id, False) for o in outputs if o.finished)
        elif action == "abort" and opened:
            name = data.draw(st.sampled_from(sorted(opened)))
            if engine.abort_request(name):
                opened[name] = False
        elif live:
            name = data.draw(st.sampled_from(live))
            engine.feed_chunk(name, audio, is_last=action == "end")
            opened[name] = action != "end"
    for name, open_ in opened.items():
        if open_:
            engine.feed_chunk(name, noise(0, 0), is_last=True)
    outputs += engine.run()

    assert terminal(outputs).keys() == opened.keys()
    assert held(engine) == (0, 0, 0)
    assert not engine._in_flight
    assert not engine._preemption.has_ready
