"""What does it cost to read three hours of each container: memory, time, and is all of it there?

A clip is repeated until the recording is long enough, then a process of its own reads that as the
worker does, without an engine. One JSON line a container.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import av
import numpy as np
import soundfile
import soxr

CLIP: Final = Path(__file__).parents[1] / "tests/data/recordings"
KINDS: Final = {
    # name: container, codec, rate, bit rate
    "wav": ("wav", "pcm_s16le", 8_000, None),
    "flac": ("flac", "flac", 16_000, None),
    "mp3": ("mp3", "libmp3lame", 16_000, 32_000),
    "m4a": ("ipod", "aac", 16_000, 32_000),
    "ogg_opus": ("ogg", "libopus", 48_000, 24_000),
    "webm_opus": ("webm", "libopus", 48_000, 24_000),
    "amr": ("amr", "libopencore_amrnb", 8_000, 12_200),
}

READER: Final = """
import json, resource, sys, time
from pathlib import Path
from oasr.audio.segmenter import SegmenterConfig
from worker.codec import FileJob
from worker.file_reader import Completed, Reading, Window
from worker.file_source import FileLimits

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

class Emptied(Reading):
    windows, last = 0, None
    def _put(self, item):
        self.windows += isinstance(item, Window)
        self.last = item if not isinstance(item, Window) else self.last

def read(path):
    limits = FileLimits((Path(path).parent,), 1 << 34, 100_000)
    reading = Emptied(FileJob("f", None, Path(path).as_uri()), limits, SegmenterConfig())
    began = time.process_time()
    reading.read()
    return reading, time.process_time() - began

read(sys.argv[1])
base = peak_mib()
reading, cpu_s = read(sys.argv[2])
done = reading.last if isinstance(reading.last, Completed) else None
print(json.dumps({
    "samples": done and done.duration_samples,
    "warnings": done and list(done.warnings),
    "failed": None if done else repr(reading.last),
    "windows": reading.windows,
    "cpu_s": round(cpu_s, 1),
    "base_mib": round(base, 1),
    "over_base_mib": round(peak_mib() - base, 1),
}))
"""


def clip_at(rate: int) -> np.ndarray:
    """A recorded message as int16 at a rate."""
    samples, from_rate = soundfile.read(sorted(CLIP.glob("voicemail-*.flac"))[0], dtype="float32")
    mono = samples if samples.ndim == 1 else samples[:, 0]
    return np.rint(soxr.resample(mono, from_rate, rate) * 32767).astype(np.int16)


def write(path: Path, kind: tuple[str, str, int, int | None], seconds: float) -> int:
    """A recording of at least so many seconds; its samples."""
    container, codec, rate, bit_rate = kind
    clip = clip_at(rate)
    written = 0
    with av.open(str(path), "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate, layout="mono")
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        form = av.AudioResampler(format=stream.codec_context.format.name, layout="mono", rate=rate)
        while written < seconds * rate:
            frame = av.AudioFrame.from_ndarray(clip[np.newaxis], format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = rate, written, Fraction(1, rate)
            for part in form.resample(frame):
                output.mux(stream.encode(part))
            written += len(clip)
        for part in form.resample(None):
            output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return written


def main() -> int:
    """Status 1 if a recording was not read whole within the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--most-mib", type=float, default=300.0, help="over the base")
    options = parser.parse_args()
    is_bad = False
    for name in options.kinds or KINDS:
        kind = KINDS[name]
        with tempfile.TemporaryDirectory() as folder:
            short, long = Path(folder, "short"), Path(folder, "long")
            write(short, kind, 60)
            samples = write(long, kind, options.hours * 3600)
            found = subprocess.run(
                [sys.executable, "-c", READER, str(short), str(long)],
                check=True,
                capture_output=True,
                text=True,
            )
            line = {
                "benchmark": "long_files",
                "kind": name,
                "hours": round(samples / kind[2] / 3600, 3),
                "file_mb": round(long.stat().st_size / 1e6, 1),
                "written": samples,
                **json.loads(found.stdout),
            }
        # encoders put up to some blocks in front and behind where the container cannot tell
        is_whole = line["samples"] is not None and 0 <= line["samples"] - samples <= 4_096
        is_bad |= not is_whole or line["over_base_mib"] > options.most_mib
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
