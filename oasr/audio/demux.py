"""The audio track of a container as arrays of int16, decoded with FFmpeg through PyAV.

FFmpeg is told the kind of the container, which decoders it may use and that it may open nothing
else. What it would log is dropped: it quotes the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import av
import numpy as np
import numpy.typing as npt
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.stream import Discard, Disposition

from oasr.audio.pcm import float_to_int16
from oasr.errors import AudioError

Int16Array = npt.NDArray[np.int16]

CODE: Final = "container_invalid"
TRUNCATED: Final = "truncated"
GAP: Final = "gap"
FORMAT_CHANGE: Final = "format_change"
MORE_STREAMS: Final = "more_audio_streams"
LOWEST_RATE, HIGHEST_RATE = 1_000, 384_000
MOST_CHANNELS: Final = 16

_PCM: Final = tuple(
    f"pcm_{kind}"
    for kind in (
        *("u8", "s8", "s8_planar", "mulaw", "alaw"),
        *(f"{kind}{end}" for kind in ("s16", "s24", "s32", "f32", "f64") for end in ("le", "be")),
    )
)
LOSSLESS: Final = frozenset((*_PCM, "flac", "alac"))
DECODERS: Final = (
    *sorted(LOSSLESS),
    *("mp3float", "mp3", "mp2float", "mp2", "aac", "opus", "vorbis", "ac3", "eac3"),
    *("amrnb", "amrwb", "gsm", "gsm_ms", "adpcm_ms", "adpcm_ima_wav", "adpcm_ima_qt"),
)
_OPTIONS: Final = {"codec_whitelist": ",".join(DECODERS), "protocol_whitelist": "none"}
_BUFFER_BYTES: Final = 1 << 16
_SHORTEST_GAP_MS: Final = 15  # recorders round and jitter their time stamps by less
_LONGEST_GAP_S: Final = 3_600  # longer ones are taken for broken time stamps


@contextmanager
def opened(file: BinaryIO, demuxer: str) -> Iterator[InputContainer]:
    """The container in a seekable file; AudioError if it is none of that kind."""
    file.seek(0)
    options = dict(_OPTIONS)
    if demuxer == "wav":
        options["max_size"] = str(_BUFFER_BYTES)
    try:
        container = av.open(
            file,
            "r",
            format=demuxer,
            options=options,
            metadata_errors="ignore",
            buffer_size=_BUFFER_BYTES,
        )
    except av.error.MemoryError:
        raise
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError(CODE, "the header cannot be understood") from error
    with container:
        yield container


def choose(container: InputContainer, warnings: list[str]) -> AudioStream:
    """The audio stream that is read: the one marked as the default, else the first.

    Everything else in the container is skipped unread; a warning says so of further audio.
    """
    streams = container.streams.audio
    if not streams:
        raise AudioError(CODE, "there is no audio in the file")
    marked = [stream for stream in streams if stream.disposition & Disposition.default]
    chosen = (marked or list(streams))[0]
    if len(streams) > 1:
        warnings.append(MORE_STREAMS)
    for stream in container.streams:
        if stream.index != chosen.index:
            stream.discard = Discard.all
    codec = chosen.codec_context
    if codec is None:
        raise AudioError(CODE, "the audio is of an encoding that nobody knows")
    if codec.codec.name not in DECODERS:
        raise AudioError(CODE, f"the audio is of an encoding that is not read: {codec.codec.name}")
    codec.thread_count = 1
    codec.options = {"err_detect": "crccheck"}
    return chosen


@dataclass(slots=True)
class Track:
    """Decodes the chosen stream once, from its beginning.

    `sample_rate` and `channels` are those of the first frame, known when `frames` gave it. What is
    wrong goes to `warnings`.
    """

    container: InputContainer
    stream: AudioStream
    warnings: list[str] = field(default_factory=list)
    sample_rate: int = 0
    channels: int = 0
    _written: int = field(default=0, init=False)  # samples that were given so far
    _first_pts: int | None = field(default=None, init=False)
    _end: int = field(default=0, init=False)  # where the last frame ends by its own time
    _is_broken: bool = field(default=False, init=False)  # since the last good frame

    def frames(self, block_frames: int) -> Iterator[Int16Array]:
        """Arrays of shape (frames, channels); lost stretches are silence of their length.

        Silence comes in arrays of at most `block_frames`. AudioError if nothing can be decoded.
        """
        for frame in self._decoded():
            if not self.sample_rate:
                self.describe(frame.sample_rate, frame.layout.nb_channels)
            elif (frame.sample_rate, frame.layout.nb_channels) != (self.sample_rate, self.channels):
                self._warn(FORMAT_CHANGE)
                return
            yield from self._silence(self._gap_before(frame), block_frames)
            samples = to_int16(frame, self.channels)
            self._written += len(samples)
            self._end += len(samples)
            yield samples
        if self._is_broken:
            if not self.sample_rate:
                raise AudioError(CODE, "no block can be decoded")
            self._warn(TRUNCATED)

    def _decoded(self) -> Iterator[AudioFrame]:
        packets = self.container.demux(self.stream)
        while True:
            try:
                packet = next(packets, None)
            except av.error.MemoryError:
                raise
            except av.error.FFmpegError:  # the container ends here, in disorder
                self._is_broken = True
                return
            if packet is None:
                return
            try:
                frames = packet.decode()
            except av.error.MemoryError:
                raise
            except av.error.FFmpegError:
                self._is_broken = True
                continue
            for frame in frames:
                if isinstance(frame, AudioFrame) and frame.samples:
                    yield frame

    def describe(self, rate: int, channels: int) -> None:
        """What is decoded has this rate and this many channels; AudioError if out of range."""
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            raise AudioError(CODE, f"a sample rate of {rate} Hz is out of range")
        if not 1 <= channels <= MOST_CHANNELS:
            raise AudioError(CODE, f"{channels} channels are out of range")
        self.sample_rate, self.channels = rate, channels

    def _gap_before(self, frame: AudioFrame) -> int:
        """Samples that are missing before a frame; moves the clock of the time stamps to it."""
        was_broken, self._is_broken = self._is_broken, False
        if was_broken:
            self._warn(GAP)
        if frame.pts is None or frame.time_base is None:
            return 0
        if self._first_pts is None:
            self._first_pts = frame.pts
        base = frame.time_base
        ticks = (frame.pts - self._first_pts) * base.numerator * self.sample_rate
        begin = (2 * ticks + base.denominator) // (2 * base.denominator)
        gap = min(begin - self._end, begin - self._written)
        self._end = begin
        if gap * 1_000 <= _SHORTEST_GAP_MS * self.sample_rate:
            return 0
        self._warn(GAP)
        if gap > _LONGEST_GAP_S * self.sample_rate:
            self._first_pts += frame.pts - self._first_pts - self._ticks(self._written, frame)
            self._end = self._written
            return 0
        return gap

    def _ticks(self, samples: int, frame: AudioFrame) -> int:
        assert frame.time_base is not None
        base = frame.time_base
        return samples * base.denominator // (base.numerator * self.sample_rate)

    def _silence(self, count: int, block_frames: int) -> Iterator[Int16Array]:
        self._written += count
        while count > 0:
            size = min(count, block_frames)
            yield np.zeros((size, self.channels), np.int16)
            count -= size

    def _warn(self, code: str) -> None:
        if code not in self.warnings:
            self.warnings.append(code)


def to_int16(frame: AudioFrame, channels: int) -> Int16Array:
    """A decoded frame as (frames, channels): floats are rounded and clipped, wide integers cut."""
    data: npt.NDArray[Any] = frame.to_ndarray()
    shaped = data.T if frame.format.is_planar else data.reshape(-1, channels)
    linear: Int16Array
    if shaped.dtype == np.int16:
        linear = shaped
    elif shaped.dtype.kind == "f":
        linear = float_to_int16(shaped)
    elif shaped.dtype == np.uint8:
        linear = (shaped.astype(np.int16) - 128) * np.int16(256)
    else:
        linear = (shaped >> (8 * shaped.dtype.itemsize - 16)).astype(np.int16)
    return np.ascontiguousarray(linear)
