"""Word times on the calls that come with the tests, against where their speech can be heard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from oasr.audio.resample import Resampler
from oasr.decoding.options import DecodingOptions
from oasr.engine.engine import ASREngine
from oasr.engine.request import RequestOutput
from tests.support.engine import make_bundled_engine, terminal

CALLS = Path(__file__).parents[2] / "data" / "calls"
RATE = 8000
BEFORE_MS, AFTER_MS = 300, 800
TOLERANCE_MS = 150
GREEDY = DecodingOptions(word_times=True)
BEAM = DecodingOptions("prefix_beam", word_times=True)


class Utterance(NamedTuple):
    audio: NDArray[np.float32]  # 16 kHz
    text: str
    begin_ms: int  # of what can be heard
    end_ms: int


def audible_ms(samples: NDArray[np.int16]) -> tuple[int, int]:
    """Begin and end of what is within 25 dB of the loudest 50 ms, to 10 ms."""
    power = samples[: len(samples) // 80 * 80].reshape(-1, 80).astype(np.float64).var(axis=1)
    wide = np.convolve(power, np.ones(5) / 5, mode="same")
    loud = np.flatnonzero(power > wide.max() * 10**-2.5)
    return int(loud[0]) * 10, int(loud[-1] + 1) * 10


def utterances() -> list[Utterance]:
    found = []
    for path in sorted(CALLS.glob("call-*.json")):
        samples = soundfile.read(path.with_suffix(".wav"), dtype="int16")[0]
        for entry in json.loads(path.read_text())["segments"]:
            begin, end = (round(entry[name] * RATE) for name in ("start", "end"))
            channel = np.ascontiguousarray(samples[:, entry["channel"]])
            first = max(0, begin - BEFORE_MS * RATE // 1000)
            resampler = Resampler(RATE)
            audio = resampler.push(channel[first : end + AFTER_MS * RATE // 1000])
            audio = np.concatenate([audio, resampler.flush()])
            edges = [ms + (begin - first) * 1000 // RATE for ms in audible_ms(channel[begin:end])]
            found.append(Utterance(audio, entry["text"], *edges))
    return found


def streamed(engine: ASREngine, audios: list[Utterance], options: DecodingOptions):
    ids = [engine.add_streaming_request(decoding=options) for _ in audios]
    for request_id, utterance in zip(ids, audios, strict=True):
        engine.feed_chunk(request_id, utterance.audio, is_last=True)
    found = terminal(engine.run())
    return [found[request_id] for request_id in ids]


def offline(engine: ASREngine, audios: list[Utterance], options: DecodingOptions):
    return engine.transcribe([utterance.audio for utterance in audios], options)


def misses_ms(outputs: list[RequestOutput], audios: list[Utterance]) -> list[float]:
    """How far first begins and last ends are off, where that word was understood."""
    found = []
    for output, utterance in zip(outputs, audios, strict=True):
        spoken = utterance.text.split()
        first, last = output.words[0], output.words[-1]
        if first.text == spoken[0]:
            found.append(first.start_sample / 16 - utterance.begin_ms)
        if last.text == spoken[-1]:
            found.append(last.end_sample / 16 - utterance.end_ms)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("decode", [streamed, offline])
@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_first_words_begin_and_last_words_end_with_what_can_be_heard(decode, options):
    audios = utterances()
    engine = make_bundled_engine()

    outputs = decode(engine, audios, options)

    for output in outputs:
        assert " ".join(word.text for word in output.words) == output.text
    found = misses_ms(outputs, audios)
    assert len(found) >= 50  # of 60 edges: the other words were misunderstood
    assert max(map(abs, found)) <= TOLERANCE_MS, sorted(found)
