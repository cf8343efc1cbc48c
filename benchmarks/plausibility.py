"""How often speech is taken for wrongly declared, and how often it is noticed; one JSON line.

    python benchmarks/plausibility.py RECORDING ...

Every channel of the recordings is written in each encoding and read as each encoding, as it is,
at −20 and −34 dB, in noise at −27 dBFS and with 8 bits; what the gate takes for speech is judged.

- `false_alarms`, `segments`: of what was declared rightly, suspected segments and all segments;
- `noticed`: `<actual> as <declared>`: the share of segments that were suspected, and of tracks with
  such a segment.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oasr.audio import g711, pcm
from oasr.audio.containers import read_blocks
from oasr.audio.pcm import Encoding
from oasr.audio.plausibility import LEAST_SAMPLES, EncodingCheck
from oasr.audio.segmenter import Audio, Cut, EndReason, Segmenter, SegmenterConfig

Samples = NDArray[np.int16]
WRITERS: dict[Encoding, Callable[[Samples], bytes]] = {
    Encoding.PCM_S16LE: lambda samples: samples.astype("<i2").tobytes(),
    Encoding.PCM_S16BE: lambda samples: samples.astype(">i2").tobytes(),
    Encoding.PCM_U8: lambda samples: ((samples >> 8) + 128).astype(np.uint8).tobytes(),
    Encoding.MULAW: g711.linear_to_mulaw,
    Encoding.ALAW: g711.linear_to_alaw,
}


def variants(track: Samples) -> Iterator[Samples]:
    """A track quieter, in noise, and with 8 bits."""
    noise = np.random.default_rng(len(track)).normal(0, 1500, len(track))
    yield np.rint(track * 0.1).astype(np.int16)
    yield np.rint(track * 0.02).astype(np.int16)
    yield np.clip(track * 0.5 + noise, -32768, 32767).astype(np.int16)
    yield (track >> 8 << 8).astype(np.int16)


def segments(samples: Samples, rate: int) -> Iterator[Samples]:
    """What the gate takes for speech."""
    segmenter = Segmenter(rate, 0, SegmenterConfig())
    parts: list[Samples] = []
    for event in [*segmenter.feed(samples), *segmenter.cut_at_end(EndReason.END)]:
        if isinstance(event, Audio):
            parts.append(event.samples)
        elif isinstance(event, Cut) and parts:
            yield np.concatenate(parts)
            parts = []


def verdicts(data: bytes, declared: Encoding, rate: int) -> list[bool]:
    """Whether each segment that is long enough is suspected."""
    whole = len(data) // declared.sample_bytes * declared.sample_bytes
    found = []
    for segment in segments(pcm.decode(data[:whole], declared), rate):
        if len(segment) >= LEAST_SAMPLES:
            check = EncodingCheck(declared)
            check.hear(segment)
            check.finish()
            found.append(check.suspect is not None)
    return found


def tracks(paths: list[Path]) -> Iterator[tuple[Samples, int]]:
    """Every channel of the recordings, with its rate."""
    for path in paths:
        info, blocks = read_blocks(path)
        whole = np.concatenate(list(blocks))
        for column in whole.T:
            yield np.ascontiguousarray(column), info.sample_rate


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path, nargs="+")
    heard: Counter[str] = Counter()
    alarms = segments_heard = judged_tracks = 0
    suspected: Counter[str] = Counter()
    noticed_tracks: Counter[str] = Counter()
    for track, rate in tracks(parser.parse_args().recordings):
        judged_tracks += 1
        for encoding, write in WRITERS.items():
            for variant in (track, *variants(track)):
                right = verdicts(write(variant), encoding, rate)
                alarms += sum(right)
                segments_heard += len(right)
            for declared in WRITERS:
                if declared is not encoding:
                    name = f"{encoding.value} as {declared.value}"
                    wrong = verdicts(write(track), declared, rate)
                    heard[name] += len(wrong)
                    suspected[name] += sum(wrong)
                    noticed_tracks[name] += any(wrong)
    noticed = {
        name: {
            "segments": round(suspected[name] / max(1, heard[name]), 2),
            "tracks": round(noticed_tracks[name] / judged_tracks, 2),
        }
        for name in heard
    }
    result = {
        "benchmark": "plausibility",
        "tracks": judged_tracks,
        "segments": segments_heard,
        "false_alarms": alarms,
        "noticed": noticed,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
