"""Whole utterances of open vocabulary, read by the real Whisper tiny.en with 8-bit weights."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import soundfile
import soxr
from numpy.typing import NDArray

from oasr.decoding.options import DecodingOptions, Hotword
from oasr.decoding.wer import Wer
from oasr.engine.config import EngineConfig
from oasr.engine.engine import ASREngine
from oasr.engine.request import Request, RequestOutput
from oasr.errors import ModelError, OptionError
from oasr.features.log_mel import WINDOW_FRAMES
from tests.support.whisper import MODEL_DIR, SPEECH, whisper_engine

Samples = NDArray[np.float32]
RATE = 16_000
BEAM = DecodingOptions("prefix_beam", beam=5, word_times=True, confidences=True)


def speech(name: str) -> Samples:
    audio, rate = soundfile.read(SPEECH / name, dtype="float32", always_2d=True)
    mono = audio.mean(axis=1)
    return mono if rate == RATE else soxr.resample(mono, rate, RATE).astype(np.float32)


def texts() -> dict[str, str]:
    entries = json.loads((SPEECH / "reference.json").read_text(encoding="utf-8"))
    return {entry["file"]: entry["text"] for entry in entries}


def plain(text: str) -> str:
    return re.sub(r"[^a-z' ]", "", text.lower().replace("-", " "))


def errors(reference: str, heard: str) -> int:
    wer = Wer()
    wer.add(plain(reference), plain(heard))
    return wer.errors


def read(*audio: Samples, decoding: DecodingOptions = BEAM) -> list[RequestOutput]:
    return whisper_engine().transcribe(audio, decoding)


def test_read_speech_and_a_speech_of_1961_become_their_texts() -> None:
    names = sorted(texts())
    outputs = read(*(speech(name) for name in names))

    for name, output in zip(names, outputs, strict=True):
        assert errors(texts()[name], output.text) <= 1, name
        assert " ".join(word.text for word in output.words) == output.text
        edges = [edge for word in output.words for edge in (word.start_sample, word.end_sample)]
        assert edges == sorted(edges)
        assert edges[-1] <= output.decoded_samples == len(speech(name))
        assert output.confidence is not None
        assert 0.5 < output.confidence <= 1
        assert output.evidence is not None
        assert output.evidence.coverage is not None
        assert output.evidence.coverage > 0.9


def tones(*hertz: float) -> Samples:
    time = np.arange(12 * RATE) / RATE
    return sum(0.3 * np.sin(2 * np.pi * hz * time) for hz in hertz).astype(np.float32)  # type: ignore[union-attr]


def without_voice() -> dict[str, Samples]:
    rng = np.random.default_rng(1)
    dtmf = tones(697, 1209) * (np.arange(12 * RATE) // (RATE // 10) % 2)
    return {
        "nothing": np.zeros(0, np.float32),
        "silence": np.zeros(12 * RATE, np.float32),
        "a tone": tones(440.0),
        "white noise": (0.1 * rng.standard_normal(12 * RATE)).astype(np.float32),
        "comfort noise": (0.002 * rng.standard_normal(12 * RATE)).astype(np.float32),
        "touch tones": dtmf.astype(np.float32),
        "a chord": tones(261.6, 329.6, 392.0),
    }


def test_where_nobody_speaks_there_are_no_words() -> None:
    outputs = read(*without_voice().values())

    assert [output.text for output in outputs] == [""] * len(outputs)
    assert {output.finish_reason for output in outputs} == {"stop"}
    assert {output.confidence for output in outputs} == {None}


def test_words_begin_where_they_are_said_and_not_where_the_window_begins() -> None:
    name = "jfk.flac"
    late = np.concatenate([np.zeros(5 * RATE, np.float32), speech(name)])
    output = read(late)[0]

    assert output.words[0].start_sample >= 5 * RATE
    assert errors(texts()[name], output.text) <= 1


def test_more_than_a_window_is_read_window_by_window() -> None:
    pause = np.zeros(RATE, np.float32)
    names = ["jfk.flac", "librispeech-1995-1837-0001.wav", "jfk.flac", "jfk.flac"]
    audio = np.concatenate([part for name in names for part in (speech(name), pause)])
    assert len(audio) > 40 * RATE

    output = read(audio)[0]

    wanted = " ".join(texts()[name] for name in names)
    assert errors(wanted, output.text) <= len(wanted.split()) // 20


def test_a_step_counts_the_frames_that_it_read_and_those_of_whole_windows() -> None:
    engine = whisper_engine()
    read(speech("jfk.flac"))

    # Of 11 s the pauses are left out.
    assert 800 < engine.stats.offline_frames <= 1100
    assert engine.stats.offline_padded_frames == WINDOW_FRAMES


def test_what_lies_behind_a_cut_is_left_to_the_next_utterance() -> None:
    engine = whisper_engine()
    request = Request(audio=speech("jfk.flac"), decoding=BEAM)
    request.keep_samples = round(7.9 * RATE)
    engine.add_request(request)

    output = engine.run()[0]

    assert "country" in output.text
    assert "what you can" not in output.text


def test_a_bad_utterance_fails_alone() -> None:
    bad = np.full(RATE, np.nan, np.float32)
    good = speech("librispeech-1995-1837-0001.wav")

    failed, output = read(bad, good)

    assert (failed.finish_reason, failed.error_stage) == ("error", "input")
    assert output.text == read(good)[0].text


def test_a_window_costs_the_same_whatever_is_in_it() -> None:
    engine = whisper_engine()
    short, long = (
        Request(audio=np.zeros(10, np.float32)),
        Request(audio=np.zeros(31 * RATE, np.float32)),
    )
    engine.add_request(short)
    engine.add_request(long)

    assert (short.num_frames, long.num_frames) == (WINDOW_FRAMES, 2 * WINDOW_FRAMES)
    assert len(engine.run()) == 2


@pytest.mark.parametrize(
    ("decoding", "code"),
    [
        (DecodingOptions("rescoring"), "search"),
        (DecodingOptions("prefix_beam", n_best=2), "n_best"),
        (DecodingOptions("prefix_beam", hotwords=(Hotword("oasr " * 300),)), "hotwords"),
        (DecodingOptions(initial_prompt="\x00" * 900), "initial_prompt"),
        (DecodingOptions(initial_prompt="a" * 1001), "initial_prompt"),
        (DecodingOptions(language="de"), "language"),
        (DecodingOptions(task="translate"), "task"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(decoding: DecodingOptions, code: str) -> None:
    with pytest.raises(OptionError, match=code) as refusal:
        whisper_engine().add_request(Request(audio=np.zeros(10, np.float32), decoding=decoding))
    assert refusal.value.code == code


def test_live_audio_is_refused() -> None:
    assert not whisper_engine().capabilities.streaming
    with pytest.raises(OptionError, match="recordings alone"):
        whisper_engine().add_streaming_request()


@pytest.mark.parametrize(
    ("device", "dtype", "said"), [("cpu", "float16", "float32, int8"), ("cpu", "bfloat16", "int8")]
)
def test_a_precision_that_the_device_lacks_is_refused(device: str, dtype: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        ASREngine(EngineConfig(ckpt_dir=MODEL_DIR, device=device, dtype=dtype))  # type: ignore[arg-type]


def test_eight_bit_weights_are_for_whisper_alone() -> None:
    with pytest.raises(ModelError, match="only Whisper"):
        ASREngine(EngineConfig(dtype="int8"))
