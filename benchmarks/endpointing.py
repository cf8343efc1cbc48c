"""Word error rate with the worker's endpointing and without; prints one JSON line.

    python benchmarks/endpointing.py --minutes 60

Utterances of the bundled test lists are joined with pauses of 0.2 to 2.5 s over line noise.
`alone` decodes every utterance by itself, between 0.3 s of the same noise: no cut is better than
that. `uncut` decodes the channel without endpointing, in pieces of the maximum length. With it the
segmenter hears the whole channel and each of its segments is decoded; a segment's words are
compared with the utterances that lie in it. `first_words_lost` and `last_words_lost` count the
outer words of utterances that lack, of all that are there in `alone`; `outside` are
utterances of which no sample lies in a segment.
"""

from __future__ import annotations

import argparse
import json
from itertools import groupby

from support.joined_speech import RATE, Int16Array, Piece, Placed, aligned, decoded, joined, pieces

from oasr.audio.segmenter import SegmenterConfig
from oasr.decoding.wer import Wer
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

MARGIN = round(0.3 * RATE)
BAR = 0.3  # percentage points that endpointing may cost

Group = tuple[list[Placed], list[str]]  # utterances, and what was heard where they lie


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--noise-dbfs", type=float, default=-60)
    options = parser.parse_args()
    engine = ASREngine(EngineConfig(max_batch_size=32))
    config = SegmenterConfig()
    samples, placed = joined(options.minutes * 60, (0.2, 2.5), options.noise_dbfs)
    segments = list(pieces(samples, config))
    texts = decoded(engine, [(piece.samples, piece.keep_samples) for piece in segments])
    alone = decoded(engine, [(_alone(samples, p), None) for p in placed])
    whole = list(pieces(samples, SegmenterConfig(gate=False)))
    uncut = decoded(engine, [(piece.samples, piece.keep_samples) for piece in whole])
    groups = grouped(placed, segments, texts)
    ended, without = errors_of(groups), Wer()
    joined_up = errors_of(grouped(placed, whole, uncut))
    for spoken, text in zip(placed, alone, strict=True):
        without.add(spoken.text, text)
    first, last = outer_words_lost(groups, dict(zip(placed, alone, strict=True)))
    print(
        json.dumps(
            {
                "benchmark": "endpointing",
                **vars(options),
                "utterances": len(placed),
                "segments": len(segments),
                "words": without.words,
                "wer_alone": round(100 * without.rate, 2),
                "wer_uncut": round(100 * joined_up.rate, 2),
                "wer_with": round(100 * ended.rate, 2),
                "cost_to_alone": round(100 * (ended.rate - without.rate), 2),
                "cost_to_uncut": round(100 * (ended.rate - joined_up.rate), 2),
                "bar": BAR,
                "first_words_lost": first,
                "last_words_lost": last,
                "outside": sum(len(spoken) for spoken, heard in groups if not heard),
                "decoded_share": round(sum(s.cut - s.start for s in segments) / len(samples), 3),
            }
        )
    )


def _alone(samples: Int16Array, place: Placed) -> Int16Array:
    return samples[max(0, place.start - MARGIN) : place.end + MARGIN]


def grouped(placed: list[Placed], segments: list[Piece], texts: list[str]) -> list[Group]:
    """Utterances with the texts of the segments that they lie in.

    Segments that share an utterance are taken together.
    """
    owner: list[int] = []  # of each utterance, its first segment; of none, a number of its own
    joined_to = list(range(len(segments)))
    for number, place in enumerate(placed):
        over = [n for n, s in enumerate(segments) if s.start < place.end and s.cut > place.start]
        for other in over[1:]:
            joined_to[other] = joined_to[over[0]]
        owner.append(joined_to[over[0]] if over else -1 - number)
    groups = []
    for first, members in groupby(zip(owner, placed, strict=True), key=lambda pair: pair[0]):
        heard = [texts[n] for n, root in enumerate(joined_to) if root == first]
        groups.append(([place for _, place in members], heard))
    spoken = {n for first in owner for n, root in enumerate(joined_to) if root == first}
    groups += [([], [texts[n]]) for n in range(len(segments)) if n not in spoken]
    return groups


def errors_of(groups: list[Group]) -> Wer:
    """Word errors of all groups."""
    found = Wer()
    for spoken, heard in groups:
        found.add(" ".join(p.text for p in spoken), " ".join(heard))
    return found


def outer_words_lost(groups: list[Group], alone: dict[Placed, str]) -> tuple[int, int]:
    """First and last words of utterances that endpointing made to be missing."""
    first = last = 0
    for spoken, heard in groups:
        said = " ".join(p.text for p in spoken).split()
        present = {i for i, j in aligned(said, " ".join(heard).split()) if j is not None}
        begin = 0
        for place in spoken:
            words = place.text.split()
            was_there = {i for i, j in aligned(words, alone[place].split()) if j is not None}
            end = begin + len(words)
            first += 0 in was_there and begin not in present
            last += len(words) - 1 in was_there and end - 1 not in present
            begin = end
    return first, last


if __name__ == "__main__":
    main()
