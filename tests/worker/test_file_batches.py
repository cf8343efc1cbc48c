"""Recordings of many channels and formats share the engine's batches, and a slow one nobody's time.

The pool reads in threads here, as in a worker.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oasr.audio.segmenter import SegmenterConfig
from tests.support.encoders import written
from tests.support.file_lane import FileLaneBench
from tests.support.files import FakeRecognizer, ThreadReaders, inline, wav
from tests.support.kafka_clients import wait_until
from tests.support.signals import Int16Array, join, silence, speech
from worker.assignment import Start
from worker.codec import FileJob
from worker.commits import CommitResult
from worker.file_lane import WAITING_PER_WORKER
from worker.file_reader import Phase, Reading

WORKERS = 3
MOST_MATES = 5
BEGIN_S = (0.3, 2.2)  # of what channel 0 says; each later channel says it a little later
SAID_S = 0.8
LATER_S = 0.1
LENGTH_S = 4.4
PRE_ROLL_S = 1.0  # no final begins earlier before its speech, or ends later behind it


def track(channel: int, rate: int, seed: int) -> Int16Array:
    """What one channel says: twice something, with a pause between."""
    said = np.zeros(round(LENGTH_S * rate), np.int16)
    for number, begin_s in enumerate(BEGIN_S):
        at = round((begin_s + channel * LATER_S) * rate)
        words = speech(SAID_S, rate, seed=100 * seed + 10 * channel + number)
        said[at : at + len(words)] = words
    return said


def tracks(channels: int, rate: int, seed: int) -> Int16Array:
    """All channels, (frames, channels)."""
    return np.stack([track(channel, rate, seed) for channel in range(channels)], axis=1)


def libsndfile(channels: int, rate: int, container: str, subtype: str) -> Callable[[int], bytes]:
    return lambda seed: written(tracks(channels, rate, seed), rate, container, subtype)


# Kind, channels, rate, how a recording of it comes to be, whether its samples are exactly ours.
KINDS: tuple[tuple[str, int, int, Callable[[int], bytes], bool], ...] = (
    ("six channels", 6, 16_000, lambda seed: wav(*tracks(6, 16_000, seed).T, rate=16_000), True),
    ("24 bits", 2, 16_000, libsndfile(2, 16_000, "WAV", "PCM_24"), True),
    ("flac", 3, 16_000, libsndfile(3, 16_000, "FLAC", "PCM_16"), True),
    ("aiff", 1, 16_000, libsndfile(1, 16_000, "AIFF", "PCM_16"), True),
    ("8 bits at 11025", 3, 11_025, libsndfile(3, 11_025, "WAV", "PCM_U8"), False),
    ("mu-law", 2, 8000, libsndfile(2, 8000, "WAV", "ULAW"), False),
    ("float at 44100", 1, 44_100, libsndfile(1, 44_100, "WAV", "FLOAT"), False),
)


class CountingEngine(FakeRecognizer):
    """Decodes a few windows at a time, whosever they are; a text is the number of its audio."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.heard: list[Any] = []
        self._file_of: dict[str, str] = {}
        self.files_together: list[int] = []  # in each batch

    def transcribe(self, *arguments: Any) -> str:
        request_id = super().transcribe(*arguments)
        self._file_of[request_id] = self.tenants[-1]
        return request_id

    def files_waiting(self) -> int:
        return len({self._file_of[request_id] for request_id in self.waiting})

    def step(self) -> None:
        """One batch, answered in no order."""
        mates = self._rng.sample(sorted(self.waiting), min(MOST_MATES, len(self.waiting)))
        self.files_together.append(len({self._file_of[request_id] for request_id in mates}))
        for request_id in mates:
            audio, _ = self.waiting[request_id]
            self.heard.append(audio)
            self.answer(request_id, str(len(self.heard) - 1))


def job(offset: int, value: bytes) -> Any:
    options = json.dumps({"tenant": f"file-{offset}"})
    return inline(offset, value, key=f"file-{offset}".encode(), options=options)


@pytest.fixture(scope="module")
def decoded() -> tuple[FileLaneBench, CountingEngine]:
    """Two recordings of each kind, read and decoded side by side."""
    bench = FileLaneBench(workers=WORKERS)
    engine = bench.recognizer = CountingEngine(random.Random(5))
    bench.assign([Start(0, 0, None)])
    numbered = [(kind, seed) for seed in (1, 2) for kind in KINDS]
    bench.read(*[job(n, kind[3](seed)) for n, (kind, seed) in enumerate(numbered)])

    def all_wait() -> bool:
        bench.lane.poll()
        return engine.files_waiting() == WORKERS

    def all_done() -> bool:
        bench.lane.poll()
        engine.step()
        bench.outbox.acknowledge()
        return bench.lane.open_jobs == 0

    wait_until("the first files have windows in the engine", all_wait, 60)
    wait_until("all files are told", all_done, 60)
    bench.lane._pool.shutdown(wait=True)
    return bench, engine


def finals_of(bench: FileLaneBench, number: int) -> list[dict[str, Any]]:
    return [final for final in bench.finals() if final["session_id"] == f"file-{number}"]


def test_windows_of_several_files_are_in_one_batch(
    decoded: tuple[FileLaneBench, CountingEngine],
) -> None:
    bench, engine = decoded

    assert max(engine.files_together) > 1
    assert len(engine.heard) == len(bench.finals())
    assert sorted(int(_text(final)) for final in bench.finals()) == [*range(len(engine.heard))]
    assert bench.commit()[0] == 2 * len(KINDS)


@pytest.mark.parametrize("number", range(2 * len(KINDS)))
def test_every_file_of_a_batch_keeps_its_order_its_clock_and_its_summary(
    decoded: tuple[FileLaneBench, CountingEngine], number: int
) -> None:
    bench, engine = decoded
    _, channels, rate, _, exact = KINDS[number % len(KINDS)]
    audio = tracks(channels, rate, 1 + number // len(KINDS))
    finals = finals_of(bench, number)

    for channel in range(channels):
        mine = [final for final in finals if final["channel"] == channel]
        assert [final["segment_index"] for final in mine] == [0, 1]
        for final, begin_s in zip(mine, BEGIN_S, strict=True):
            spoken_s = begin_s + channel * LATER_S
            assert spoken_s - PRE_ROLL_S < final["start"] <= spoken_s
            assert spoken_s + SAID_S <= final["end"] + 0.05
            start, end = final["start_sample"], final["end_sample"]
            assert (final["start"], final["end"]) == (
                pytest.approx(start / rate, abs=0.001),
                pytest.approx(end / rate, abs=0.001),
            )
            heard = engine.heard[int(_text(final))]
            assert len(heard) == pytest.approx((end - start) * 16_000 / rate, abs=2)
            if exact:
                assert np.array_equal(np.rint(heard * 32768), audio[start:end, channel])
        assert mine[0]["end_sample"] <= mine[1]["start_sample"]
    assert len(finals) == 2 * channels
    _check_summary(bench, f"file-{number}", finals, len(audio), rate)


def _check_summary(
    bench: FileLaneBench, file_id: str, finals: list[dict[str, Any]], frames: int, rate: int
) -> None:
    (summary,) = [event for event in bench.completed() if event["file_id"] == file_id]
    assert (summary["finals"], summary["duration_samples"], summary["sample_rate"]) == (
        len(finals),
        frames,
        rate,
    )
    for totals in summary["totals"]:
        mine = [final for final in finals if final["channel"] == totals["channel"]]
        decoded_samples = sum(final["end_sample"] - final["start_sample"] for final in mine)
        assert totals["finals"] == len(mine)
        assert totals["decoded"]["samples"] == decoded_samples
        assert totals["received"]["samples"] == frames
        assert totals["silence"]["samples"] == frames - decoded_samples
    keys = [record.key for record in bench.outbox.sent]
    last = len(keys) - 1 - keys[::-1].index(file_id.encode())
    assert json.loads(bench.outbox.sent[last].value)["schema"] == summary["schema"]


def _text(final: dict[str, Any]) -> str:
    return str(final["alternatives"][0]["transcript"])


# A slow fetch


class _SlowReading(Reading):
    """A file that takes as long to come as the test says, if its id says so."""

    def __init__(self, slow: SlowReaders, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._slow = slow

    def _reached(self, phase: Phase) -> None:
        if phase is Phase.FETCHING and self.job.file_id == "slow":
            self._slow.fetching.set()
            assert self._slow.arrived.wait(120)


class SlowReaders(ThreadReaders):
    """Readers of which one waits for its file."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fetching, self.arrived = threading.Event(), threading.Event()

    def reading(self, job: FileJob, endpointing: SegmenterConfig) -> Reading:
        return _SlowReading(self, job, self._limits, endpointing)


def test_the_lane_polls_on_while_a_file_is_fetched_slowly_and_others_are_read() -> None:
    bench = FileLaneBench(workers=2, readers=SlowReaders)
    readers = bench.lane._options.readers
    assert isinstance(readers, SlowReaders)
    bench.assign([Start(0, 0, None)])
    talk = wav(join(silence(0.5), speech(1.0), silence(0.5)))
    names = ["slow", *(f"quick-{n}" for n in range(2 * WAITING_PER_WORKER + 1))]
    bench.read(*[inline(n, talk, key=name.encode()) for n, name in enumerate(names)])
    assert readers.fetching.wait(60)

    def polled() -> None:
        before = len(bench.reader.waited)
        bench.lane.poll()
        assert len(bench.reader.waited) == before + 1
        bench.lane.tick()
        bench.recognizer.answer_all()
        bench.outbox.acknowledge()

    def quick_ones_are_told() -> bool:
        polled()
        return len(bench.completed()) == len(names) - 1

    assert bench.reader.paused == {0}  # enough jobs wait; paused partitions are polled as well
    polled()
    wait_until("all files but the slow one are told", quick_ones_are_told, 60)
    assert bench.commit()[0] == 0
    bench.lane.commit_answered(0, CommitResult.DONE)
    readers.arrived.set()

    def slow_one_is_told() -> bool:
        polled()
        return len(bench.completed()) == len(names)

    wait_until("the slow one is told", slow_one_is_told, 60)
    assert bench.completed()[-1]["file_id"] == "slow"
    assert bench.commit()[0] == len(names)
    bench.lane.close()
