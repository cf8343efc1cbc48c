"""WAV and FLAC files as blocks of int16, read with libsndfile.

Only what begins like one of the two reaches the library, and of WAV only plain sample encodings are
taken. Headers of files that were cut off or written to a pipe are often wrong: then the samples
that are there are read, and a warning says so.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import soundfile

from oasr.audio.pcm import float_to_int16
from oasr.audio.riff import PatchedFile, check_wav
from oasr.errors import AudioError

Int16Array = npt.NDArray[np.int16]
Source = Path | str | bytes

CODE = "container_invalid"
TRUNCATED = "truncated"
LOWEST_RATE, HIGHEST_RATE = 1_000, 384_000
MOST_CHANNELS = 16

_CONTAINERS = {"WAV", "WAVEX", "RF64", "FLAC"}
_FLOATS = {"FLOAT", "DOUBLE"}
_ENCODINGS = {"PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "ULAW", "ALAW"} | _FLOATS
_MOST_FRAMES = 1 << 48  # libsndfile gives an absurd number where a header gives none
# A read that fails loses all it was asked for; FLAC is asked for less than its usual block.
_FLAC_READ_FRAMES = 1_024


class _SequentialFile(soundfile.SoundFile):  # type: ignore[misc]
    """Read from start to end; the library's seek after every read fails where FLAC breaks off."""

    def seekable(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class AudioFileInfo:
    """What a file is; `warnings` (codes) may grow while its blocks are read.

    `frames` is the number of samples of each channel that the file promises, None if it does not.
    """

    sample_rate: int
    channels: int
    frames: int | None
    encoding: str
    warnings: list[str] = field(default_factory=list)


def read_blocks(
    source: Source, block_frames: int = 16_384
) -> tuple[AudioFileInfo, Iterator[Int16Array]]:
    """Describe a WAV or FLAC file (a path, or its bytes) and iterate over its samples.

    The blocks are int16 of shape (frames, channels) with at most `block_frames` frames; one block
    is in memory at a time. Floats are rounded and clipped, wider integers lose their low bits.
    Raises AudioError `container_invalid` if the file is neither or is of an encoding that is not
    taken, also in the first step if not one block of a damaged file can be decoded; OSError if
    the path cannot be read. The warning `truncated` means that the end is missing or damaged,
    `header_size_mismatch` that the header is wrong about the size.
    """
    if block_frames < 1:
        raise ValueError(f"block_frames must be positive, not {block_frames}")
    warnings: list[str] = []
    with _open_source(source) as raw:
        sound = _open_sound(raw, warnings)
        with sound:
            info = _describe(sound, warnings)
    return info, _blocks(source, info, block_frames)


def probe(source: Source) -> AudioFileInfo:
    """Describe a WAV or FLAC file without reading its samples; raises what `read_blocks` does."""
    return read_blocks(source)[0]


def _open_source(source: Source) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")


def _open_sound(raw: BinaryIO, warnings: list[str]) -> soundfile.SoundFile:
    magic = raw.read(4)
    raw.seek(0)
    file: BinaryIO | PatchedFile = raw
    if magic in (b"RIFF", b"RF64"):
        layout = check_wav(raw)
        warnings.extend(layout.warnings)
        if layout.patches:
            file = PatchedFile(raw, layout.patches)
        raw.seek(0)
    elif magic != b"fLaC":
        raise AudioError(CODE, "neither WAV nor FLAC")
    try:
        return _SequentialFile(file)
    except (soundfile.SoundFileError, TypeError, ValueError) as error:
        raise AudioError(CODE, "the header cannot be understood") from error


def _describe(sound: soundfile.SoundFile, warnings: list[str]) -> AudioFileInfo:
    if sound.format not in _CONTAINERS or sound.subtype not in _ENCODINGS:
        raise AudioError(CODE, f"{sound.format} with {sound.subtype} is not supported")
    if not LOWEST_RATE <= sound.samplerate <= HIGHEST_RATE:
        raise AudioError(CODE, f"a sample rate of {sound.samplerate} Hz is out of range")
    if not 1 <= sound.channels <= MOST_CHANNELS:
        raise AudioError(CODE, f"{sound.channels} channels are out of range")
    frames = sound.frames if sound.frames < _MOST_FRAMES else None
    return AudioFileInfo(sound.samplerate, sound.channels, frames, sound.subtype.lower(), warnings)


def _blocks(source: Source, info: AudioFileInfo, block_frames: int) -> Iterator[Int16Array]:
    with _open_source(source) as raw, _open_sound(raw, []) as sound:
        step = min(block_frames, _FLAC_READ_FRAMES) if sound.format == "FLAC" else block_frames
        parts: list[Int16Array] = []
        held = read = 0
        for part in _parts(sound, info, step):
            if held + len(part) > block_frames:
                yield np.concatenate(parts)
                parts, held = [], 0
            parts.append(part)
            held += len(part)
            read += len(part)
        if parts:
            yield np.concatenate(parts)
    if info.frames is not None and read < info.frames and TRUNCATED not in info.warnings:
        info.warnings.append(TRUNCATED)


def _parts(sound: soundfile.SoundFile, info: AudioFileInfo, frames: int) -> Iterator[Int16Array]:
    """What can be read, in steps; a decoding error ends it and is raised only if it comes first."""
    is_float = sound.subtype in _FLOATS
    is_first = True
    while True:
        try:
            part = sound.read(frames, dtype="float64" if is_float else "int16", always_2d=True)
        except soundfile.SoundFileError as error:
            if is_first:
                raise AudioError(CODE, "no block can be decoded") from error
            info.warnings.append(TRUNCATED)
            return
        if not len(part):
            return
        is_first = False
        yield float_to_int16(part) if is_float else part
