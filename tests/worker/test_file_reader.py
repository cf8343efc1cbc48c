"""A recording becomes windows of speech, in bounded memory, or one clear failure."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from oasr.audio.resample import Resampler
from oasr.audio.segmenter import SegmenterConfig
from tests.support.files import wav
from tests.support.signals import Int16Array, join, silence, speech
from tests.support.wav import PCM, chunk, fmt, riff
from worker.codec import FileJob
from worker.errors import ErrorCode
from worker.file_reader import (
    QUEUE_WINDOWS,
    WINDOW_MS,
    Completed,
    Failed,
    Item,
    Opening,
    Reading,
    Window,
    window_config,
)
from worker.file_source import FileLimits

TALK = join(silence(0.5), speech(1.0), silence(1.5), speech(2.0, seed=2), silence(0.5))


def reading(
    audio: bytes | None, uri: str | None = None, roots: tuple[Path, ...] = (), max_s: int = 600
) -> Reading:
    limits = FileLimits(roots, 1 << 24, max_s)
    return Reading(FileJob("f", audio, uri), limits, SegmenterConfig())


def items(audio: bytes, max_s: int = 600) -> list[Item]:
    """All items of a short recording."""
    read = reading(audio, max_s=max_s)
    read.read()
    found = []
    while (item := read.take()) is not None:
        found.append(item)
    return found


def windows(found: list[Item], channel: int = 0) -> list[Window]:
    return [item for item in found if isinstance(item, Window) and item.channel == channel]


def test_a_recording_opens_has_its_windows_and_completes() -> None:
    found = items(wav(TALK))

    assert found[0] == Opening(8000, 1)
    assert found[-1] == Completed(len(TALK), ())
    first, second = windows(found)
    assert (first.index, second.index) == (0, 1)
    assert 0 < first.start_sample < 4000 < 12_000 < first.end_sample <= second.start_sample
    assert second.end_sample == len(TALK)


def test_a_window_holds_exactly_its_audio_at_the_models_rate() -> None:
    for window in windows(items(wav(TALK))):
        resampler = Resampler(8000, 16_000)
        part = TALK[window.start_sample : window.end_sample]
        expected = np.concatenate([resampler.push(part), resampler.flush()])
        np.testing.assert_array_equal(window.audio, expected)


def test_channels_are_cut_apart() -> None:
    quiet = silence(len(TALK) / 8000)

    found = items(wav(quiet, TALK))

    assert found[0] == Opening(8000, 2)
    assert windows(found, 0) == []
    alone = [(w.start_sample, w.end_sample) for w in windows(items(wav(TALK)))]
    assert [(w.start_sample, w.end_sample) for w in windows(found, 1)] == alone


def test_silence_has_no_windows() -> None:
    assert items(wav(silence(3.0))) == [Opening(8000, 1), Completed(24_000, ())]


def test_a_recording_of_nothing_completes() -> None:
    assert items(wav(silence(0)))[-1] == Completed(0, ())


def test_windows_are_never_longer_than_thirty_seconds() -> None:
    talk = speech(70.0)

    found = windows(items(wav(talk)))

    lengths = [w.end_sample - w.start_sample for w in found]
    assert sum(lengths) == len(talk)
    assert max(lengths) <= WINDOW_MS * 8
    assert len(found) >= 3


def test_a_file_that_breaks_off_gives_its_good_part_and_a_warning() -> None:
    whole = wav(TALK)

    found = items(whole[: len(whole) // 2])

    completed = found[-1]
    assert isinstance(completed, Completed)
    assert "truncated" in completed.warnings
    assert 0 < completed.duration_samples < len(TALK)
    assert len(windows(found)) == 1


def test_a_header_that_lies_is_a_warning() -> None:
    data = TALK.astype("<i2").tobytes()
    lying = riff(fmt(PCM, 1, 8000, 16), chunk(b"data", data, declared=0))

    completed = items(lying)[-1]

    assert isinstance(completed, Completed)
    assert completed.warnings


@pytest.mark.parametrize("garbage", [b"", b"no recording at all", b"RIFF\0\0\0\0WAVE", b"fLaC"])
def test_garbage_fails(garbage: bytes) -> None:
    (failed,) = items(garbage)

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.CONTAINER_INVALID


def test_a_file_that_is_too_long_fails() -> None:
    failed = items(wav(silence(3.0)), max_s=2)[-1]

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.AUDIO_TOO_LONG


def test_a_file_that_may_not_be_read_fails_without_an_opening(tmp_path: Path) -> None:
    read = reading(None, f"file://{tmp_path}/a.wav")
    read.read()

    failed = read.take()
    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.URI_FORBIDDEN


def test_a_file_that_cannot_be_read_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("worker.file_reader.read_blocks", broken)
    failed = items(wav(TALK))[-1]

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.FETCH_FAILED


def test_a_fault_of_ours_fails_the_file_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("worker.file_reader.read_blocks", broken)
    failed = items(wav(TALK))[-1]

    assert isinstance(failed, Failed)
    assert failed.code is ErrorCode.CONTAINER_INVALID
    assert "could not be decoded" in caplog.text


def many_words() -> Int16Array:
    return join(*[join(speech(0.4, seed=i), silence(1.3)) for i in range(30)])


def test_a_reader_waits_while_its_windows_are_not_taken() -> None:
    read = reading(wav(many_words()))
    most = 0
    original = read._items.put

    def put(item: Item, timeout: float) -> None:
        nonlocal most
        original(item, timeout=timeout)
        most = max(most, read._items.qsize())

    read._items.put = put  # type: ignore[method-assign, assignment]
    thread = threading.Thread(target=read.read)
    thread.start()
    found: list[Item] = []
    while not found or not isinstance(found[-1], Completed | Failed):
        found.append(read._items.get(timeout=30))
    thread.join(30)

    assert len(windows(found)) == 30
    assert most <= QUEUE_WINDOWS


def test_a_reader_that_is_cancelled_ends_though_nobody_takes_its_windows() -> None:
    read = reading(wav(many_words()))
    thread = threading.Thread(target=read.read)
    thread.start()
    read._items.get(timeout=30)
    read.cancel()
    thread.join(30)

    assert not thread.is_alive()


def test_a_cancelled_reader_does_not_tell_of_failures() -> None:
    read = reading(b"garbage")
    read.cancel()
    read.read()

    assert read.take() is None


@pytest.mark.parametrize("no_speech_ms", [2000, 30_000])
@pytest.mark.parametrize("quiet_search_ms", [5000, 29_000])
def test_other_times_give_way_to_the_length_of_a_window(
    no_speech_ms: int, quiet_search_ms: int
) -> None:
    live = SegmenterConfig(
        max_utterance_ms=60_000, no_speech_ms=no_speech_ms, quiet_search_ms=quiet_search_ms
    )

    config = window_config(live)

    assert config.max_utterance_ms == WINDOW_MS
    assert config.min_silence_ms == live.min_silence_ms
