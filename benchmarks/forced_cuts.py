"""Words lost and repeated where speech without a pause is cut at its maximum length.

    python benchmarks/forced_cuts.py --minutes 120

Utterances of the bundled test lists are joined with at most 0.25 s between them, so that every cut
of the segmenter is one by length. Each cut is decoded twice by the streaming engine: as it is, the
segments before and after it, and as a control, from the middle of the one to the middle of the
other without a cut. Both are aligned with the words that were said, and the words next to the cut
(two on each side) are compared: `lost` are words that the control has and the cut one lacks,
`repeated` words that only the cut one has twice. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from itertools import pairwise

from support.joined_speech import RATE, Pair, Piece, Placed, aligned, decoded, joined, pieces

from oasr.audio.segmenter import EndReason, SegmenterConfig
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

NEIGHBOURS = 2


@dataclass(slots=True)
class Tally:
    """What happened next to the cuts."""

    cuts: int = 0
    words: int = 0
    wrong: int = 0
    wrong_in_control: int = 0
    lost: int = 0
    regained: int = 0  # lacking in the control, there with the cut
    repeated: int = 0
    repeated_in_control: int = 0
    examples: list[str] = field(default_factory=list)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--noise-dbfs", type=float, default=-60)
    parser.add_argument("--max-utterance-ms", type=int, default=20_000)
    parser.add_argument("--quiet-search-ms", type=int, default=5_000)
    parser.add_argument("--examples", action="store_true", help="list what was lost or repeated")
    options = parser.parse_args()
    engine = ASREngine(EngineConfig(max_batch_size=32))
    config = SegmenterConfig(
        max_utterance_ms=options.max_utterance_ms,
        quiet_search_ms=options.quiet_search_ms,
        min_silence_ms=10_000,  # some utterances pause inside
    )
    samples, placed = joined(options.minutes * 60, (0.0, 0.25), options.noise_dbfs)
    segments = list(pieces(samples, config))
    texts = decoded(engine, [(piece.samples, piece.keep_samples) for piece in segments])
    middles = [(piece.start + piece.cut) // 2 for piece in segments]
    controls = decoded(
        engine,
        [(samples[a:b], None) for a, b in pairwise(middles)],
    )
    tally = Tally()
    for index, control in enumerate(controls):
        pair = (segments[index], segments[index + 1])
        assert pair[0].reason is EndReason.MAX_LENGTH
        compare(tally, pair, (texts[index], texts[index + 1]), control, placed)
    report = {name: getattr(tally, name) for name in Tally.__slots__ if name != "examples"}
    chosen = {name: v for name, v in vars(options).items() if name != "examples"}
    print(json.dumps({"benchmark": "forced_cuts", **chosen, **report}))
    if options.examples:
        print("\n".join(tally.examples))


def compare(
    tally: Tally,
    pair: tuple[Piece, Piece],
    texts: tuple[str, str],
    control: str,
    placed: list[Placed],
) -> None:
    """Count the words next to one cut."""
    begin, end = pair[0].start, pair[1].cut
    near = [p for p in placed if p.end > begin - RATE and p.start < end + RATE]
    said = " ".join(p.text for p in near).split()
    before, after = texts[0].split(), texts[1].split()
    with_cut, without = aligned(said, before + after), aligned(said, control.split())
    first = 1 + max(
        (i for i, j in with_cut if i is not None and j is not None and j < len(before)), default=-1
    )
    last = min(
        (i for i, j in with_cut if i is not None and j is not None and j >= len(before)),
        default=len(said),
    )
    window = range(max(0, first - NEIGHBOURS), min(len(said), last + NEIGHBOURS))
    heard, expected = before + after, control.split()
    wrong, missing, extra = errors(with_cut, said, heard, window)
    control_wrong, control_missing, control_extra = errors(without, said, expected, window)
    tally.cuts += 1
    tally.words += len(window)
    tally.wrong += wrong
    tally.wrong_in_control += control_wrong
    lost, regained = missing - control_missing, control_missing - missing
    tally.lost += len(lost)
    tally.regained += len(regained)
    tally.repeated += extra
    tally.repeated_in_control += control_extra
    if lost or extra:
        said_here = " ".join(said[window.start : window.stop])
        tally.examples.append(
            f"said: {said_here} | cut: {' '.join(before[-4:])} / {' '.join(after[:4])}"
        )


def errors(
    pairs: list[Pair], said: list[str], heard: list[str], window: range
) -> tuple[int, set[int], int]:
    """Wrong words in a window of what was said, those that lack, and how many were repeated."""
    wrong, repeated, at = 0, 0, 0
    missing = set()
    for i, j in pairs:
        at = at if i is None else i
        if at not in window:
            continue
        if i is None:
            wrong += 1
            word = heard[j]  # type: ignore[index]
            repeated += word in said[max(0, at - 1) : at + 2]
        elif j is None:
            wrong += 1
            missing.add(i)
        elif said[i] != heard[j]:
            wrong += 1
    return wrong, missing, repeated


if __name__ == "__main__":
    main()
