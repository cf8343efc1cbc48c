"""Which reading of a window is believed, with a model that reads as the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import soundfile

from oasr.engine.whisper_windows import Manner, Window, WindowReader
from oasr.features.log_mel import LogMel
from oasr.models.whisper.model import Aligned, Reading, WhisperModel, compute_type
from oasr.models.whisper.rules import TEMPERATURES
from oasr.models.whisper.tokens import WhisperTokens
from tests.support.whisper import MODEL_DIR, SPECIAL, SPEECH, write_tokenizer

WORD, END = 1, 8
ZERO = END + len(SPECIAL)
GOOD = Reading((ZERO, WORD, ZERO + 50), -0.3, 0.1)
UNSURE = GOOD._replace(log_prob=-1.2)
REPEATED = Reading((ZERO, *[WORD] * 200, ZERO + 50), -0.1, 0.1)
SILENCE = Reading((ZERO, WORD, ZERO + 50), -1.2, 0.7)


class FakeModel:
    """Gives each window of a batch its reading, then one reading for each temperature."""

    num_mel_bins = 80
    is_multilingual = False

    def __init__(self, tokens: WhisperTokens, first: Sequence[Reading], later: Sequence[Reading]):
        self.tokens, self.first, self.later = tokens, first, later
        self.temperatures: list[float] = []
        self.loads = 0

    def encode(self, features: Any) -> int:
        return len(features)

    def read(self, encoded: int, prompts: list[list[int]], beam: int) -> list[Reading]:
        assert (encoded, beam) == (len(prompts), 5)
        return list(self.first)

    def loaded_anew(self) -> FakeModel:
        self.loads += 1
        return self

    def sample(self, encoded: int, prompt: list[int], temperature: float) -> Reading:
        assert list(prompt) == [END + 1]
        assert encoded == 1
        self.temperatures.append(temperature)
        return self.later[len(self.temperatures) - 1]

    def align(
        self, encoded: int, start: list[int], tokens: list[list[int]], frames: list[int]
    ) -> list[Aligned]:
        assert start == [END + 1]
        assert frames == [10] * encoded
        return [Aligned(np.arange(len(row) + 1), np.ones(len(row))) for row in tokens]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> WhisperTokens:
    return WhisperTokens(write_tokenizer(tmp_path_factory.mktemp("model") / "tokenizer.json"))


def window(word_times: bool = False) -> Window:
    return Window(np.zeros(1_600, np.float32), Manner(5), word_times)


@pytest.mark.parametrize(
    ("later", "believed", "temperature"),
    [
        ([GOOD], GOOD, 0.2),
        ([REPEATED, UNSURE, GOOD], GOOD, 0.6),
        ([SILENCE], SILENCE, 0.2),
        ([REPEATED] * 4 + [UNSURE._replace(log_prob=-1.1)], None, 1.0),
    ],
)
def test_a_doubtful_reading_is_replaced_by_the_first_that_is_not(
    tokens: WhisperTokens, later: list[Reading], believed: Reading | None, temperature: float
) -> None:
    model = FakeModel(tokens, [UNSURE], later)

    heard = WindowReader(model).read([window()])[0]  # type: ignore[arg-type]

    assert heard.reading == (later[-1] if believed is None else believed)
    assert heard.temperature == temperature
    assert model.temperatures == list(TEMPERATURES[: len(later)])
    assert model.loads == 1


def test_only_the_window_that_fails_is_read_again(tokens: WhisperTokens) -> None:
    model = FakeModel(tokens, [GOOD, UNSURE, GOOD], [GOOD])

    heard = WindowReader(model).read([window()] * 3)  # type: ignore[arg-type]

    assert [one.temperature for one in heard] == [0.0, 0.2, 0.0]
    assert model.temperatures == [0.2]


def test_where_the_model_hears_nobody_there_is_no_text(tokens: WhisperTokens) -> None:
    heard = WindowReader(FakeModel(tokens, [SILENCE], [])).read([window()])[0]  # type: ignore[arg-type]

    assert heard.said == []
    assert heard.temperature == 0.0


def test_words_are_aligned_where_their_times_are_wanted(tokens: WhisperTokens) -> None:
    model = FakeModel(tokens, [GOOD, SILENCE], [])

    spoken, silent = WindowReader(model).read([window(True), window()])  # type: ignore[arg-type]

    assert spoken.aligned is not None
    assert spoken.aligned.starts.tolist() == [0, 1]
    assert silent.aligned is None


def test_what_is_drawn_at_a_temperature_is_the_same_each_time() -> None:
    audio = soundfile.read(SPEECH / "librispeech-1995-1837-0001.wav", dtype="float32")[0]
    features = LogMel(80)([audio[: 4 * 16_000]])
    model = WhisperModel(MODEL_DIR, "cpu", compute_type("cpu", "int8"), 1)

    drawn = []
    for _ in range(2):
        anew = model.loaded_anew()
        encoded = anew.encode(features)
        drawn.append(
            [anew.sample(encoded, [model.tokens.start], temperature) for temperature in (0.8, 1.0)]
        )
        model.sample(
            model.encode(features), [model.tokens.start], 1.0
        )  # other windows do not matter

    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]
