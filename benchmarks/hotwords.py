"""What hotwords gain and what they cost; prints one JSON line.

    python benchmarks/hotwords.py [--distractors 500]

Streams of the bundled model over its list `phrases`. The hotwords are the longer words of which
the beam without help misses an instance, so the gain is that on words known to be hard; every
utterance gets all of them. `--distractors` adds so many words that nobody says, made of the
syllables of those that are: the price of long lists.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter

from support.spoken_lists import Spoken, finals, spoken_list

from oasr.decoding.options import DecodingOptions, Hotword
from oasr.decoding.wer import Wer
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from oasr.errors import OptionError

BOOSTS = (0.0, 1.0, 2.0, 3.0, 5.0)  # 0: none
LEFT_OUT = ("seven", "dollars")
SHORTEST = 4  # letters


def main() -> None:
    """Decodes the list once for each boost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--distractors", type=int, default=0)
    parser.add_argument("--beam", type=int, default=10)
    options = parser.parse_args()
    engine = ASREngine(EngineConfig(num_left_chunks=4))
    phrases = spoken_list("phrases")
    plain = heard(engine, phrases, DecodingOptions("prefix_beam", options.beam))
    hard = sorted({word for said, text in plain for word in missed(said, text)})
    hotwords = [w for w in hard if len(w) >= SHORTEST and w not in LEFT_OUT]
    others = distractors(engine, phrases, options.distractors)
    rows = []
    for boost in BOOSTS:
        chosen = tuple(Hotword(word, boost) for word in (*hotwords, *others) if boost)
        found = heard(
            engine, phrases, DecodingOptions("prefix_beam", options.beam, hotwords=chosen)
        )
        rows.append({"boost": boost, **figures(found, {*hotwords, *others})})
    line = {"benchmark": "hotwords", **vars(options), "hotwords": len(hotwords), "rows": rows}
    sys.stdout.write(json.dumps(line) + "\n")


def heard(
    engine: ASREngine, phrases: list[Spoken], decoding: DecodingOptions
) -> list[tuple[str, str]]:
    """What was said and what was heard."""
    return [(said, output.text) for said, output in finals(engine, phrases, decoding)]


def missed(said: str, text: str) -> Counter[str]:
    """The words that are in what was said more often than in what was heard."""
    return Counter(said.split()) - Counter(text.split())


def distractors(engine: ASREngine, phrases: list[Spoken], count: int) -> list[str]:
    """Words that nobody says and that the model can write."""
    rng = random.Random(0)
    spoken = sorted({w for phrase in phrases for w in phrase.text.split() if len(w) >= SHORTEST})
    made: dict[str, None] = {}
    while len(made) < count:
        head, tail = rng.choice(spoken), rng.choice(spoken)
        word = head[: len(head) // 2 + 1] + tail[len(tail) // 2 :]
        if word not in spoken and _can_be_written(engine, word):
            made[word] = None
    return list(made)


def _can_be_written(engine: ASREngine, word: str) -> bool:
    decoding = DecodingOptions("prefix_beam", hotwords=(Hotword(word),))
    try:
        engine.abort_request(engine.add_streaming_request(decoding=decoding))
    except OptionError:
        return False
    engine.run()
    return True


def figures(found: list[tuple[str, str]], hotwords: set[str]) -> dict[str, float]:
    """Recall of the spoken hotwords, hotwords heard that nobody said, and the error rate."""
    wer, spoken, lost, false = Wer(), 0, 0, 0
    for said, text in found:
        wer.add(said, text)
        spoken += sum(word in hotwords for word in said.split())
        lost += sum(n for word, n in missed(said, text).items() if word in hotwords)
        false += sum(n for word, n in missed(text, said).items() if word in hotwords)
    return {
        "spoken": spoken,
        "found": spoken - lost,
        "recall": round((spoken - lost) / spoken, 3),
        "false_accepts": false,
        "wer": round(100 * wer.rate, 2),
    }


if __name__ == "__main__":
    main()
