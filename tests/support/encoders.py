"""Recordings in the formats that telephony and recording systems write, made in memory."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile
from numpy.typing import NDArray

Int16Array = NDArray[np.int16]

LAYOUTS = {1: "mono", 2: "stereo"}


def encoded(
    samples: Int16Array,
    rate: int,
    container: str,
    codec: str,
    options: dict[str, str] | None = None,
    bit_rate: int | None = None,
) -> bytes:
    """`samples` of shape (frames, channels) as FFmpeg encodes them."""
    return film([samples], rate, container, codec, options, bit_rate=bit_rate)


def film(
    tracks: Sequence[Int16Array],
    rate: int,
    container: str,
    codec: str,
    options: dict[str, str] | None = None,
    pictures: int = 0,
    default: int | None = None,
    bit_rate: int | None = None,
) -> bytes:
    """Audio tracks, in a container that may have pictures and mark one track as the default."""
    with tempfile.TemporaryDirectory() as directory:  # the muxer of M4A opens its output again
        path = Path(directory) / "recording"
        _mux(path, tracks, rate, (container, codec), options or {}, pictures, default, bit_rate)
        return path.read_bytes()


def _mux(
    path: Path,
    tracks: Sequence[Int16Array],
    rate: int,
    kind: tuple[str, str],
    options: dict[str, str],
    pictures: int,
    default: int | None,
    bit_rate: int | None,
) -> None:
    container, codec = kind
    with av.open(str(path), "w", format=container, options=options) as output:
        screen: Any = output.add_stream("mpeg4", rate=10) if pictures else None
        streams: list[Any] = []
        for number, track in enumerate(tracks):
            stream: Any = output.add_stream(codec, rate=rate, layout=LAYOUTS[track.shape[1]])  # type: ignore[call-overload]
            if bit_rate is not None:
                stream.bit_rate = bit_rate
            if default is not None:
                stream.disposition = int(number == default)
            streams.append(stream)
        if pictures:
            _show(output, screen, pictures)
        for stream, track in zip(streams, tracks, strict=True):
            for frame in _frames(track, rate, stream):
                output.mux(stream.encode(frame))
            output.mux(stream.encode(None))


def _frames(samples: Int16Array, rate: int, stream: Any) -> Iterator[Any]:
    context = stream.codec_context
    resampler = av.AudioResampler(format=context.format.name, layout=context.layout, rate=rate)
    for begin in range(0, len(samples), 1_000):
        part = np.ascontiguousarray(samples[begin : begin + 1_000].reshape(1, -1))
        frame = av.AudioFrame.from_ndarray(part, format="s16", layout=LAYOUTS[samples.shape[1]])
        frame.sample_rate, frame.pts, frame.time_base = rate, begin, Fraction(1, rate)
        yield from resampler.resample(frame)
    yield from resampler.resample(None)


def _show(output: Any, stream: Any, count: int) -> None:
    stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
    for number in range(count):
        frame = av.VideoFrame.from_ndarray(
            np.full((32, 32, 3), number % 256, np.uint8), format="rgb24"
        )
        output.mux(stream.encode(frame))
    output.mux(stream.encode(None))


def written(samples: Int16Array, rate: int, container: str, subtype: str) -> bytes:
    """`samples` as libsndfile, which has nothing in common with FFmpeg, writes them."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    return file.getvalue()
