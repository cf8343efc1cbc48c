"""The trained VAD's figures, beside the package's own way of getting them."""

import subprocess
import sys

import numpy as np
import pytest

from oasr.audio import silero
from oasr.audio.gates import Vad
from oasr.audio.segmenter import EndReason, Opened, Segmenter, SegmenterConfig
from oasr.audio.silero import VoiceActivity
from oasr.audio.voice_gate import VoiceGate
from tests.support.signals import noise, silence
from tests.support.talk import spoken, talk

# The package sets the number of torch's threads when it is imported: in a process of its own.
PUBLISHED = """
import sys
import numpy as np
import torch
from silero_vad import load_silero_vad
rate = int(sys.argv[1])
samples = np.frombuffer(sys.stdin.buffer.read(), np.int16).astype(np.float32) / 32768
model = load_silero_vad(onnx=True)
windows = torch.from_numpy(samples).split(rate * 32 // 1000)
np.array([model(w, rate).item() for w in windows], np.float32).tofile(sys.stdout.buffer)
"""


def published(samples, rate):
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PUBLISHED, str(rate)],
        input=samples.tobytes(),
        capture_output=True,
        check=True,
        timeout=120,
    )
    return np.frombuffer(answer.stdout, np.float32)


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_the_probabilities_are_those_of_the_package(rate):
    window = rate * 32 // 1000
    samples = talk(5, rate, seed=3)
    samples = samples[: len(samples) // window * window]

    ours = VoiceActivity(rate).push(samples)

    assert np.allclose(ours, published(samples, rate), atol=1e-5)
    assert max(ours) > 0.9
    assert min(ours) < 0.1


@pytest.mark.parametrize("rate", [4000, 11_025, 22_050, 48_000])
def test_other_rates_hear_nearly_the_same(rate):
    frame = rate // 100
    samples = spoken(rate)[2]
    activity = VoiceActivity(rate)
    heard = [
        p
        for n in range(0, len(samples) - frame, frame)
        for p in activity.push(samples[n : n + frame])
    ]
    native = VoiceActivity(16_000 if rate > 16_000 else 8000).push(
        spoken(16_000 if rate > 16_000 else 8000)[2]
    )

    agreeing = [(a > 0.5) == (b > 0.5) for a, b in zip(heard, native, strict=False)]
    assert np.mean(agreeing) > 0.85


def test_pieces_give_the_very_same_figures():
    samples = talk(3, 8000, seed=1)
    whole = VoiceActivity(8000).push(samples)
    activity = VoiceActivity(8000)

    pieces = [p for n in range(0, len(samples), 37) for p in activity.push(samples[n : n + 37])]

    assert pieces == whole


def test_a_peek_changes_nothing():
    samples = talk(2, 8000, seed=1)
    activity = VoiceActivity(8000)
    figures = []
    for begin in range(0, len(samples), 100):
        figures += activity.push(samples[begin : begin + 100])
        activity.peek()

    assert figures == VoiceActivity(8000).push(samples)


def test_speech_is_told_from_noise():
    assert max(VoiceActivity(8000).push(spoken(8000)[0])) > 0.9
    assert max(VoiceActivity(8000).push(noise(5, dbfs=-25))) < 0.3


def test_one_loud_window_is_no_onset_and_two_are(monkeypatch):
    def onset(*probabilities):
        rest = iter(probabilities)
        gate = VoiceGate(8000, 80, 500)
        monkeypatch.setattr(gate._voice, "push", lambda frame: [next(rest)] if len(frame) else [])
        return gate.await_onset(silence(0.01 * len(probabilities)))

    assert onset(0.1, 0.9, 0.1, 0.1, 0.9, 0.1) is None
    assert onset(0.1, 0.9, 0.9, 0.1) == 3
    assert onset(0.1, 0.9, 0.4, 0.9) == 4
    assert onset(0.1, 0.49, 0.49, 0.49) is None


def test_silence_is_counted_from_the_last_window_that_might_be_speech(monkeypatch):
    rest = iter([0.9, 0.36, 0.34, 0.34, 0.36, 0.1, 0.1, 0.1])
    gate = VoiceGate(8000, 80, 500)
    monkeypatch.setattr(gate._voice, "push", lambda frame: [next(rest)] if len(frame) else [])

    assert gate.await_silence(silence(0.08), 3) == 8


def test_a_word_of_less_than_a_window_is_kept_by_a_forced_cut():
    word = spoken(8000)[2]
    loudest = int(np.abs(word.astype(int)).argmax())
    segmenter = Segmenter(8000, 0, SegmenterConfig(vad=Vad.SILERO))
    segmenter.feed(silence(1))
    events = segmenter.feed(word[loudest - 100 : loudest + 300])

    assert events == []
    assert isinstance(segmenter.cut_at_end(EndReason.END)[0], Opened)


def test_what_is_missing_is_told(monkeypatch):
    assert silero.is_installed()
    assert Vad.SILERO.is_installed
    monkeypatch.setattr(silero, "find_spec", lambda _name: None)

    assert not Vad.SILERO.is_installed
    assert Vad.ENERGY.is_installed


def test_torch_keeps_its_threads():
    code = (
        "import torch; torch.set_num_threads(3);"
        "from oasr.audio.silero import VoiceActivity; VoiceActivity(8000);"
        "assert torch.get_num_threads() == 3"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_stretches_that_are_heard_together_get_what_each_gets_alone():
    speech = talk(50, 16_000, seed=5)
    stretches = [speech[:0], speech[:5_000], speech[:300_000], speech]

    together = silero.heard_together([s.astype(np.float32) / 32768 for s in stretches])

    for stretch, found in zip(stretches, together, strict=True):
        activity = VoiceActivity(16_000)
        alone = np.array([*activity.push(stretch), activity.peek()])
        assert len(found) == len(alone)
        first = found[:625]  # a piece has none before it
        assert np.allclose(first, alone[:625], atol=1e-4)
        assert np.mean((found >= 0.5) != (alone >= 0.5)) < 0.01
    again = silero.heard_together([speech.astype(np.float32) / 32768])[0]
    assert np.allclose(again, together[-1], atol=1e-4)
