"""What hotwords do to speech: hard words are found, and hardly a word is heard that nobody said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from oasr.decoding.options import DecodingOptions, Hotword
from oasr.engine.engine import ASREngine
from tests.support.engine import make_bundled_engine
from tests.support.testsets import WORDS, read_list

LIST = "phrases"
SHORTEST = 4  # letters: shorter hotwords cost more than they give
COMMON = ("seven", "dollars")  # said so often that to prefer them is no help
UNSAID = {"mortgage", "broadband", "insurance", "technician", "router", "warranty", "premium"}
MOST_FALSE = 0.01  # of the words that were said


def heard(engine: ASREngine, hotwords: Iterable[str]) -> list[tuple[str, str]]:
    """What is said in each recording of the list, and what is heard of it."""
    decoding = DecodingOptions("prefix_beam", hotwords=tuple(map(Hotword, hotwords)))
    said = {}
    for samples, text in read_list(LIST):
        request_id = engine.add_streaming_request(decoding=decoding)
        engine.feed_chunk(request_id, samples, is_last=True)
        said[request_id] = text
    texts = {output.request_id: output.text for output in engine.run() if output.finished}
    return [(text, texts[request_id]) for request_id, text in said.items()]


def lost(said: str, text: str) -> Counter[str]:
    """The words that are in the one more often than in the other."""
    return Counter(said.split()) - Counter(text.split())


def found_of(found: Sequence[tuple[str, str]], words: set[str]) -> tuple[int, int, int]:
    """How many of the words were said, were heard where they were, and where they were not."""
    said = sum(word in words for text, _ in found for word in text.split())
    missed = sum(n for text, got in found for w, n in lost(text, got).items() if w in words)
    false = sum(n for text, got in found for w, n in lost(got, text).items() if w in words)
    return said, said - missed, false


@pytest.mark.slow
def test_hotwords_find_words_that_are_missed_without_them_and_add_hardly_a_false_one() -> None:
    engine = make_bundled_engine(num_left_chunks=4)
    plain = heard(engine, ())
    hard = {word for said, text in plain for word in lost(said, text) if len(word) >= SHORTEST}
    hard -= {*COMMON}
    said, before, _ = found_of(plain, hard)
    assert said > 15
    assert found_of(plain, UNSAID)[0] == 0

    helped = heard(engine, sorted(hard | UNSAID))

    _, after, false = found_of(helped, hard | UNSAID)
    assert after >= before + said // 3
    assert false <= MOST_FALSE * WORDS[LIST]
    wrong = [sum(lost(said, text).total() for said, text in found) for found in (plain, helped)]
    assert wrong[1] < wrong[0]  # over all words
