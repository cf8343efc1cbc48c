"""How often the words of partials stay, beside the stability that was stated for them.

Streams of the bundled model's two lists, once by each search. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from support.spoken_lists import spoken_list
from support.stated_shares import table

from oasr.decoding.options import DecodingOptions, SearchMethod
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from oasr.engine.request import RequestOutput

LISTS = ("human_digits", "phrases")
SEARCHES: tuple[SearchMethod, ...] = get_args(SearchMethod)
EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999999, 1.01)


def streamed(engine: ASREngine, audio: NDArray[np.float32]) -> dict[str, list[RequestOutput]]:
    """All outputs of one utterance, by each search."""
    ids = {
        engine.add_streaming_request(decoding=DecodingOptions(search, stability=True)): search
        for search in SEARCHES
    }
    for request_id in ids:
        engine.feed_chunk(request_id, audio, is_last=True)
    said: dict[str, list[RequestOutput]] = {search: [] for search in SEARCHES}
    for output in engine.run():
        said[ids[output.request_id]].append(output)
    return said


def survivals(outputs: list[RequestOutput]) -> Iterator[tuple[float, bool, bool, int]]:
    """Of each word of each partial: stability, whether it stayed, whether it was the last, age."""
    final = outputs[-1].text.split()
    for output in outputs[:-1]:
        words = output.text.split()
        frames = (output.decoded_samples // 160 - 2 - 6) // 4
        age = frames - output.token_frames[-1] if output.token_frames else 0
        for count, stability in enumerate(output.stability, start=1):
            yield stability, words[:count] == final[:count], count == len(words), age


def main() -> None:
    """Decodes the lists and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=1000, help="utterances of each list")
    parser.add_argument("--chunk-size", type=int, default=16)
    options = parser.parse_args()
    engine = ASREngine(EngineConfig(chunk_size=options.chunk_size, num_left_chunks=4))
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    by_age: dict[int, list[bool]] = defaultdict(list)
    spoken = [one for name in LISTS for one in spoken_list(name)[: options.most]]
    for utterance in spoken:
        for search, outputs in streamed(engine, utterance.samples).items():
            for stability, stayed, is_last, age in survivals(outputs):
                found[search].append((stability, stayed))
                if search == "greedy" and is_last:
                    by_age[age].append(stayed)
    line = {
        "benchmark": "stability",
        "chunk_size": options.chunk_size,
        "searches": {
            search: table(pairs, EDGES, "words", "stayed") for search, pairs in found.items()
        },
        "last_word_of_greedy_by_frames_since": {
            age: [len(stayed), round(sum(stayed) / len(stayed), 3)]
            for age, stayed in sorted(by_age.items())
        },
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
