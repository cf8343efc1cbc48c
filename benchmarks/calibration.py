"""How often words and utterances of a stated confidence are right; prints one JSON line.

    python benchmarks/calibration.py [--svg docs/images/calibration.svg]

Streams of the bundled model over its two test lists, once by each search. A word is right where
the alignment of the fewest edits puts it beside an equal word of what was said, an utterance
where its whole text is. `ece` is the mean distance between what is stated and what is right,
weighed by the words.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from support.calibration_plot import Series, draw
from support.joined_speech import aligned
from support.spoken_lists import finals, spoken_list
from support.stated_shares import table

from oasr.decoding.options import DecodingOptions, SearchMethod
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine

EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.01)
SEARCHES: tuple[SearchMethod, ...] = ("greedy", "prefix_beam")
Judged = list[tuple[float, bool]]  # confidence, and whether it is right


def main() -> None:
    """Decodes the lists and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, help="draw the words' tables there")
    options = parser.parse_args()
    engine = ASREngine(EngineConfig(num_left_chunks=4))
    line: dict[str, object] = {"benchmark": "calibration"}
    plots = []
    for search in SEARCHES:
        words, whole = judged(engine, search)
        rows = table(words, EDGES, "count", "right")
        plots.append(Series(search.replace("_", " "), rows))
        line[search] = {
            "words": rows,
            "ece": error_of(rows),
            "utterances": table(whole, EDGES, "count", "right"),
        }
    if options.svg:
        options.svg.write_text(draw(plots), encoding="utf-8")
    sys.stdout.write(json.dumps(line) + "\n")


def judged(engine: ASREngine, search: SearchMethod) -> tuple[Judged, Judged]:
    """Every word and every utterance of the lists."""
    words: Judged = []
    whole: Judged = []
    decoding = DecodingOptions(search, confidences=True, word_times=True)
    for name in ("human_digits", "phrases"):
        for said, output in finals(engine, spoken_list(name), decoding):
            reference, heard = said.split(), [word.text for word in output.words]
            found = right_words(reference, heard)
            for j, word in enumerate(output.words):
                words.append((word.confidence or 0.0, j in found))
            if output.confidence is not None:
                whole.append((output.confidence, said == output.text))
    return words, whole


def right_words(reference: list[str], heard: list[str]) -> set[int]:
    """The indices of heard words that lie beside an equal word of the reference."""
    # `aligned` lets the reference's ends go for nothing; marks that both have hold them
    pairs = aligned(["<", *reference, ">"], ["<", *heard, ">"])
    return {
        j - 1
        for i, j in pairs
        if i and j and i <= len(reference) and j <= len(heard) and reference[i - 1] == heard[j - 1]
    }


def error_of(rows: list[dict[str, float]]) -> float:
    """The expected calibration error (Naeini et al. 2015) over the table's bins."""
    count = sum(row["count"] for row in rows)
    return round(sum(r["count"] * abs(r["stated"] - r["right"]) for r in rows) / count, 4)


if __name__ == "__main__":
    main()
