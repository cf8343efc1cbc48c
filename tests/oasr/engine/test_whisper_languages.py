"""How a window's language, task and prompt reach a multilingual model, which the test makes up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from oasr.decoding.options import DecodingOptions, Hotword
from oasr.engine.family import Capabilities
from oasr.engine.whisper_utterance import manner_of
from oasr.engine.whisper_windows import Manner, Window, WindowReader
from oasr.errors import OptionError
from oasr.models.whisper.model import Aligned, Reading
from oasr.models.whisper.tokens import WhisperTokens
from tests.support.whisper import SPECIAL, TEXT, write_tokenizer

END = len(TEXT)
START, EN, DE, NO, TRANSLATE, TRANSCRIBE, BEFORE = range(END + 1, END + 8)
ZERO = END + len(SPECIAL)


class Multilingual:
    """Hears German in the first window of a batch and English in the others."""

    num_mel_bins = 80
    is_multilingual = True

    def __init__(self, tokens: WhisperTokens) -> None:
        self.tokens = tokens
        self.prompts: list[tuple[int, ...]] = []
        self.started: list[int] = []

    def encode(self, features: object) -> object:
        return features

    def detect(self, encoded: Sequence[object]) -> list[tuple[int, float]]:
        return [(DE, 0.9), *[(EN, 0.8)] * (len(encoded) - 1)]

    def read(self, encoded: object, prompts: list[tuple[int, ...]], beam: int) -> list[Reading]:
        del encoded, beam
        self.prompts = prompts
        return [Reading((ZERO, 1, ZERO + 50), -0.3, 0.1)] * len(prompts)

    def align(
        self, encoded: object, start: list[int], tokens: list[list[int]], frames: list[int]
    ) -> list[Aligned]:
        del encoded, frames
        self.started = start
        return [Aligned(np.arange(len(row) + 1), np.ones(len(row))) for row in tokens]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> WhisperTokens:
    return WhisperTokens(write_tokenizer(tmp_path_factory.mktemp("model") / "tokenizer.json"))


def read(tokens: WhisperTokens, manner: Manner) -> tuple[Multilingual, list[object]]:
    model = Multilingual(tokens)
    window = Window(np.zeros(1_600, np.float32), manner, True)
    heard = WindowReader(model).read([window, window])  # type: ignore[arg-type]
    return model, [(one.language, one.sure) for one in heard]


def test_each_window_is_read_in_the_language_that_is_found_in_it(tokens: WhisperTokens) -> None:
    model, languages = read(tokens, Manner(5))

    assert languages == [(DE, 0.9), (EN, 0.8)]
    assert model.prompts == [(START, DE, TRANSCRIBE), (START, EN, TRANSCRIBE)]
    assert model.started == [START, DE, TRANSCRIBE]


def test_a_language_that_is_asked_for_is_not_looked_for(tokens: WhisperTokens) -> None:
    model, languages = read(tokens, Manner(5, (BEFORE, 1), NO, translates=True))

    assert languages == [(NO, None), (NO, None)]
    assert model.prompts == [(BEFORE, 1, START, NO, TRANSLATE)] * 2


@pytest.mark.parametrize(
    ("asked", "manner"),
    [
        (DecodingOptions(), Manner(1)),
        (DecodingOptions("prefix_beam", beam=4, language="auto"), Manner(4)),
        (DecodingOptions(language="de-AT"), Manner(1, (), DE)),
        (DecodingOptions(language="NB", task="translate"), Manner(1, (), NO, True)),
        (DecodingOptions(initial_prompt="a<|de|>"), Manner(1, (BEFORE, 0))),
        (
            DecodingOptions("prefix_beam", beam=2, initial_prompt="a", hotwords=(Hotword("a"),)),
            Manner(2, (BEFORE, 0, 0)),
        ),
    ],
)
def test_options_become_tokens(
    tokens: WhisperTokens, asked: DecodingOptions, manner: Manner
) -> None:
    assert manner_of(asked, tokens) == manner


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (DecodingOptions(language="de"), "language"),
        (DecodingOptions(language="auto"), "language"),
        (DecodingOptions(task="translate"), "task"),
        (DecodingOptions(initial_prompt="a"), "initial_prompt"),
    ],
)
def test_what_a_model_cannot_do_is_refused_by_name(asked: DecodingOptions, code: str) -> None:
    usual = Capabilities(streaming=True, searches=("greedy",), languages=("en", "fr"))

    with pytest.raises(OptionError) as refusal:
        usual.check(asked)
    assert refusal.value.code == code
    able = Capabilities(
        streaming=False,
        searches=("greedy",),
        languages=("en", "de"),
        detects_language=True,
        translates=True,
        prompts=True,
    )
    able.check(asked)


def test_of_a_model_with_one_language_auto_is_that_language() -> None:
    Capabilities(streaming=True, searches=("greedy",), languages=("en",)).check(
        DecodingOptions(language="auto")
    )
