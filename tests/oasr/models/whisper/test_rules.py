from __future__ import annotations

import pytest

from oasr.models.whisper.model import Reading
from oasr.models.whisper.rules import best_of, compression, is_doubtful, is_silence

REPEATED = "thank you " * 30
PLAIN = "a quick brown fox jumps over the lazy dog"


def reading(log_prob: float, no_speech: float = 0.0) -> Reading:
    return Reading((), log_prob, no_speech)


def test_a_text_that_repeats_itself_packs_better_than_any_other() -> None:
    assert compression(REPEATED) > 2.4
    assert compression(PLAIN) < 1.1
    assert compression("") == 0.0


@pytest.mark.parametrize(
    ("log_prob", "no_speech", "text", "doubtful", "silent"),
    [
        (-0.3, 0.0, PLAIN, False, False),
        (-1.01, 0.0, PLAIN, True, False),
        (-0.3, 0.0, REPEATED, True, False),
        (-1.01, 0.61, REPEATED, False, True),  # nobody speaks: no other reading helps
        (-0.3, 0.99, PLAIN, False, False),  # sure of the words: the doubt does not count
        (-1.0, 0.61, PLAIN, False, False),
    ],
)
def test_the_published_thresholds_decide(
    log_prob: float, no_speech: float, text: str, doubtful: bool, silent: bool
) -> None:
    found = reading(log_prob, no_speech)

    assert is_doubtful(found, text) is doubtful
    assert is_silence(found) is silent


def test_of_doubtful_readings_the_likeliest_that_does_not_repeat_itself_counts() -> None:
    assert best_of([(reading(-0.2), REPEATED), (reading(-1.5), PLAIN), (reading(-1.2), PLAIN)]) == 2
    assert best_of([(reading(-1.2), REPEATED), (reading(-0.9), REPEATED)]) == 1
