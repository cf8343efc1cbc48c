"""A file that kills its decoder is refused; all that was read before it died is told once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from oasr.audio.segmenter import SegmenterConfig
from tests.support.files import wav
from tests.support.poison import (
    decode_slowly,
    die_once,
    fetch_for_ever,
    hang,
    hang_in_the_decoder,
    read_and_die,
    take_memory,
)
from tests.support.signals import join, silence, speech
from worker.codec import FileJob
from worker.errors import ErrorCode
from worker.file_reader import Completed, Failed, Item, Opening, Reading, Window
from worker.file_source import FileLimits
from worker.isolated_reading import Readers, Serve, serve

LIMITS = FileLimits((), 1 << 30, 600)
SHORT = replace(LIMITS, decode_timeout_s=1, fetch_timeout_s=1)
PAUSES = wav(join(*[join(speech(20.0, seed=n), silence(1.5)) for n in range(3)]))
LIMIT_S = 60.0


class Bench:
    """A reading in a thread, as the pool runs it."""

    def __init__(
        self,
        serve: Serve,
        file_id: str = "f",
        audio: bytes = PAUSES,
        limits: FileLimits = LIMITS,
    ) -> None:
        self.deaths = 0
        self.job = FileJob(file_id, audio, None)
        self.readers = Readers(limits, self._died, serve)
        self.reading = self.readers.reading(self.job, SegmenterConfig())
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
        self.readers.close()
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


@pytest.mark.parametrize(
    ("serve", "limits", "code", "message"),
    [
        (hang_in_the_decoder, replace(LIMITS, stall_timeout_s=1), "decode_timeout", "stood still"),
        (decode_slowly, SHORT, "decode_timeout", "decoding took"),
        (fetch_for_ever, SHORT, "fetch_unavailable", "fetching took"),
        (
            take_memory,
            replace(LIMITS, max_memory_bytes=1 << 29),
            "decode_memory",
            "memory",
        ),
    ],
)
def test_a_process_that_takes_too_much_is_ended_and_its_file_refused(
    serve: Serve, limits: FileLimits, code: str, message: str
) -> None:
    bench = Bench(serve, limits=limits)
    children = set(multiprocessing.active_children())

    (failed,) = bench.run()

    assert isinstance(failed, Failed)
    assert failed.code.value == code
    assert message in failed.message
    assert bench.deaths == 0
    assert set(multiprocessing.active_children()) <= children


def test_one_process_reads_one_file_after_the_other() -> None:
    readers = Readers(LIMITS, lambda: None)
    pids = set()
    for audio in (PAUSES, b"rubbish", PAUSES):
        bench = Bench(serve, audio=audio)
        bench.reading = readers.reading(bench.job, SegmenterConfig())
        bench.thread = threading.Thread(target=bench.reading.read)
        bench.run()
        reader = readers.take()
        pids.add(reader.process.pid)
        readers.give_back(reader)
    readers.close()

    assert len(pids) == 1


def test_a_process_that_died_while_it_waited_is_replaced() -> None:
    readers = Readers(LIMITS, lambda: None)
    first = readers.take()
    readers.give_back(first)
    assert first.process.pid is not None
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()

    second = readers.take()

    assert second is not first
    readers.give_back(second)
    readers.close()
