"""A file that kills its decoder is refused; all that was read before it died is told once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from oasr.audio.segmenter import SegmenterConfig
from tests.support.files import wav
from tests.support.poison import die_once, hang, read_and_die
from tests.support.signals import join, silence, speech
from worker.codec import FileJob
from worker.errors import ErrorCode
from worker.file_reader import Completed, Failed, Item, Opening, Reading, Window
from worker.file_source import FileLimits
from worker.isolated_reading import IsolatedReading, Serve, serve

LIMITS = FileLimits((), 1 << 30, 600)
PAUSES = wav(join(*[join(speech(20.0, seed=n), silence(1.5)) for n in range(3)]))
LIMIT_S = 60.0


class Bench:
    """A reading in a thread, as the pool runs it."""

    def __init__(self, serve: Serve, file_id: str = "f", audio: bytes = PAUSES) -> None:
        self.deaths = 0
        self.job = FileJob(file_id, audio, None)
        self.reading = IsolatedReading(self.job, LIMITS, SegmenterConfig(), self._died, serve)
        self.thread = threading.Thread(target=self.reading.read)

    def _died(self) -> None:
        self.deaths += 1

    def run(self) -> list[Item]:
        self.thread.start()
        found: list[Item] = []
        deadline = time.monotonic() + LIMIT_S
        while not found or not isinstance(found[-1], Completed | Failed):
            assert time.monotonic() < deadline, "it did not end"
            self.thread.join(0.02)
            item = self.reading.take()
            if item is not None:
                found.append(item)
        self.thread.join(LIMIT_S)
        return found


def read_here() -> list[Item]:
    reading = Reading(FileJob("f", PAUSES, None), LIMITS, SegmenterConfig())
    reading.read()
    found: list[Item] = []
    while (item := reading.take()) is not None:
        found.append(item)
    return found


def places(items: list[Item]) -> list[object]:
    """Items as far as they can be compared."""
    return [
        (i.channel, i.index, i.start_sample, i.end_sample, i.audio.tobytes())
        if isinstance(i, Window)
        else i
        for i in items
    ]


def test_a_child_reads_what_is_read_here() -> None:
    bench = Bench(serve)

    assert places(bench.run()) == places(read_here())
    assert bench.deaths == 0


def test_a_file_that_kills_its_decoder_twice_is_refused_after_what_was_read() -> None:
    bench = Bench(read_and_die)
    *before, last = bench.run()

    assert last == Failed(ErrorCode.CRASHED_WORKER, "reading the file ended a process 2 times")
    assert places(before) == places(read_here()[:-1])
    assert bench.deaths == 2


def test_after_one_death_the_reading_goes_on_where_it_was(tmp_path: Path) -> None:
    bench = Bench(die_once, str(tmp_path / "mark"))

    assert places(bench.run()) == places(read_here())
    assert bench.deaths == 1


def test_a_file_that_is_none_is_refused_for_that() -> None:
    (failed,) = Bench(serve, audio=b"rubbish").run()

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.CONTAINER_INVALID


@pytest.mark.parametrize("serve", [hang, serve])
def test_a_reading_that_nobody_wants_ends_with_its_process(serve: Serve) -> None:
    bench = Bench(serve)
    bench.thread.start()
    bench.reading.cancel()
    bench.thread.join(LIMIT_S)

    assert not bench.thread.is_alive()
    item = bench.reading.take()
    assert item is None or isinstance(item, Opening)
