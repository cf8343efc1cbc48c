"""Recordings as blocks of int16, whatever container and encoding they are in.

Only what begins like a kind that we read reaches FFmpeg. Headers of files that were cut off or
written to a pipe are often wrong: then the samples that are there are read, and a warning says so.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
from av.audio.stream import AudioStream

from oasr.audio.container_formats import other_kind, sniff
from oasr.audio.demux import CODE, LOSSLESS, TRUNCATED, Track, choose, opened
from oasr.audio.endings import matroska_breaks_off, mp3_counts_its_frames, ogg_breaks_off
from oasr.audio.riff import PatchedFile, check_wav
from oasr.errors import AudioError

Int16Array = npt.NDArray[np.int16]
Source = Path | str | bytes | BinaryIO

# Containers whose header counts the samples of a track; of the others FFmpeg estimates.
_COUNTING = {"wav", "w64", "flac", "aiff", "caf", "au", "mov"}
_MOST_PADDING_FRAMES = 4_096
_LOSSY_TOLERANCE = 10  # a tenth of a second: encoders count their delay, or do not


@dataclass(frozen=True, slots=True)
class AudioFileInfo:
    """What a file is; `warnings` (codes) may grow while its blocks are read.

    `frames` is the number of samples of each channel that the file promises, None if it does not;
    `encoding` is FFmpeg's name of it.
    """

    sample_rate: int
    channels: int
    frames: int | None
    encoding: str
    warnings: list[str] = field(default_factory=list)


def read_blocks(
    source: Source, block_frames: int = 16_384
) -> tuple[AudioFileInfo, Iterator[Int16Array]]:
    """Describe a recording (a path, its bytes, or a seekable file) and iterate over its samples.

    The blocks are int16 of shape (frames, channels) with at most `block_frames` frames; about one
    block is in memory at a time. Floats are rounded and clipped, wider integers lose their low
    bits. Of a film the audio is read, of several audio streams the default one. Raises AudioError
    `container_invalid` if the file is of no kind that is read or nothing of it can be decoded;
    OSError if it cannot be read.

    Warnings: `truncated`, the end is missing or damaged; `header_size_mismatch`, the header is
    wrong about the size; `gap`, a stretch that is lost is silence; `format_change`, what comes
    after a change of rate or channels is left out; `more_audio_streams`, only one of them is read.
    """
    if block_frames < 1:
        raise ValueError(f"block_frames must be positive, not {block_frames}")
    with _open_track(source) as reading:
        info = _describe(reading, next(reading.track.frames(block_frames), None))
    return info, _blocks(source, info, block_frames)


def probe(source: Source) -> AudioFileInfo:
    """Describe a recording without reading it whole; raises what `read_blocks` does."""
    return read_blocks(source)[0]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A track and what its container says of it."""

    track: Track
    promised: int | None  # frames
    is_padded: bool  # an encoder's last block reaches beyond that
    warnings: list[str]


@contextmanager
def _open_track(source: Source) -> Iterator[_Reading]:
    with _open_source(source) as raw:
        demuxer = sniff(raw)
        if demuxer is None:
            raise AudioError(CODE, _refusal(raw))
        warnings: list[str] = []
        file: BinaryIO = raw
        data_frames = None
        if demuxer == "wav":
            layout = check_wav(raw)
            warnings.extend(layout.warnings)
            data_frames = layout.frames
            if layout.patches:
                file = cast(BinaryIO, PatchedFile(raw, layout.patches))
        elif _breaks_off(demuxer, raw):
            warnings.append(TRUNCATED)
        counts = demuxer in _COUNTING or (demuxer == "mp3" and mp3_counts_its_frames(raw))
        with opened(file, demuxer) as container:
            stream = choose(container, warnings)
            promised = _promised(stream, data_frames) if counts else None
            is_padded = demuxer == "mov" and stream.codec_context.codec.name not in LOSSLESS
            yield _Reading(Track(container, stream), promised, is_padded, warnings)


def _refusal(file: BinaryIO) -> str:
    name = other_kind(file)
    told = "" if name is None else f": {name}"
    return f"the file is of no kind that is read{told}"


@contextmanager
def _open_source(source: Source) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, str | Path):
        with open(source, "rb") as file:
            yield file
    else:
        yield source


def _breaks_off(demuxer: str, file: BinaryIO) -> bool:
    if demuxer == "ogg":
        return ogg_breaks_off(file)
    return demuxer == "matroska" and matroska_breaks_off(file)


def _promised(stream: AudioStream, data_frames: int | None) -> int | None:
    """Frames of the stream: for plain samples of a WAV as many as are there."""
    codec = stream.codec_context
    if data_frames is not None and codec.codec.name.startswith("pcm_"):
        return data_frames
    if stream.duration is None or stream.time_base is None:
        return None
    return round(stream.duration * stream.time_base * codec.sample_rate)


def _describe(reading: _Reading, first: Int16Array | None) -> AudioFileInfo:
    track = reading.track
    codec = track.stream.codec_context
    if first is None:
        if reading.promised:
            raise AudioError(CODE, "no block can be decoded")
        track.describe(codec.sample_rate, codec.layout.nb_channels)
    promised = reading.promised
    if promised is not None and track.sample_rate != codec.sample_rate and codec.sample_rate:
        promised = promised * track.sample_rate // codec.sample_rate
    return AudioFileInfo(
        track.sample_rate, track.channels, promised, codec.codec.name, reading.warnings
    )


def _blocks(source: Source, info: AudioFileInfo, block_frames: int) -> Iterator[Int16Array]:
    read = 0
    with _open_track(source) as reading:
        reading.track.warnings = info.warnings
        parts = reading.track.frames(block_frames)
        if reading.is_padded and info.frames:
            parts = _without_padding(parts, info.frames)
        for block in _joined(parts, block_frames):
            read += len(block)
            yield block
        lossless = reading.track.stream.codec_context.codec.name in LOSSLESS
    tolerance = 0 if lossless else info.sample_rate // _LOSSY_TOLERANCE
    if info.frames and read + tolerance < info.frames and TRUNCATED not in info.warnings:
        info.warnings.append(TRUNCATED)


def _without_padding(parts: Iterator[Int16Array], promised: int) -> Iterator[Int16Array]:
    """Drop what an encoder's last blocks hold beyond the promised frames.

    Where more comes than that can be, the promise is wrong and everything is given.
    """
    given = 0
    held: list[Int16Array] = []
    for part in parts:
        inside = part[: max(0, promised - given)] if given <= promised else part
        if len(inside):
            yield inside
        given += len(part)
        if len(inside) < len(part):
            held.append(part[len(inside) :])
        if given > promised + _MOST_PADDING_FRAMES:
            yield from held
            held.clear()
            promised = given


def _joined(parts: Iterator[Int16Array], block_frames: int) -> Iterator[Int16Array]:
    """Arrays of any length as arrays of at most `block_frames`, about as long as that."""
    waiting: list[Int16Array] = []
    held = 0
    for part in parts:
        for begin in range(0, len(part), block_frames):
            piece = part[begin : begin + block_frames]
            if held + len(piece) > block_frames:
                yield np.concatenate(waiting)
                waiting, held = [], 0
            waiting.append(piece)
            held += len(piece)
    if waiting:
        yield np.concatenate(waiting)
