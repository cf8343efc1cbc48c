"""Many files are read at the same time: each comes out as if it had been read alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from oasr.audio.segmenter import SegmenterConfig
from tests.support.encoders import encoded, written
from tests.support.files import wav
from tests.support.signals import join, silence, speech
from worker.codec import FileJob
from worker.file_reader import Completed, Reading, Window
from worker.file_source import FileLimits


def recording(number: int) -> tuple[str, bytes]:
    """A suffix and a recording that no other number has, in one of four kinds."""
    samples = join(silence(0.4), speech(0.6 + number / 100, seed=number), silence(0.4))
    column = samples[:, np.newaxis]
    if number % 4 == 0:
        return "wav", wav(samples, samples[::-1].copy())
    if number % 4 == 1:
        return "flac", written(column, 8_000, "FLAC", "PCM_16")
    if number % 4 == 2:
        return "mp3", encoded(column, 8_000, "mp3", "libmp3lame")
    return "m4a", encoded(column, 8_000, "ipod", "aac")


def read(job: FileJob, roots: tuple[Path, ...]) -> list[tuple[object, ...]]:
    reading = Reading(job, FileLimits(roots, 1 << 24, 600), SegmenterConfig())
    reading.read()
    found: list[tuple[object, ...]] = []
    while (item := reading.take()) is not None:
        if isinstance(item, Window):
            place = (item.channel, item.index, item.start_sample, item.end_sample)
            found.append((*place, item.audio.tobytes()))
        elif isinstance(item, Completed):
            found.append((item.duration_samples, item.warnings))
    return found


def test_64_files_at_once_have_each_their_own_windows(tmp_path: Path) -> None:
    by_value, by_name = [], []
    for number in range(32):
        suffix, data = recording(number)
        path = tmp_path / f"{number}.{suffix}"
        path.write_bytes(data)
        by_value.append(FileJob(f"value-{number}", data, None))
        by_name.append(FileJob(f"name-{number}", None, path.as_uri()))
    jobs = by_value + by_name
    alone = [read(job, (tmp_path,)) for job in by_value]

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda job: read(job, (tmp_path,)), jobs))

    assert together == alone + alone
    assert all(len(found) >= 2 for found in alone)
    assert len({repr(found) for found in alone}) == 32
