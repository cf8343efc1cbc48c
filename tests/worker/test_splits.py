"""However a call's bytes are cut into messages, its session hears the same samples."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.pcm import Encoding
from tests.support.calls import control, message
from tests.support.g711 import alaw_value, mulaw_value
from tests.support.partitions import Desk
from worker.messages import RawMessage

HEARD_WHOLE = json.dumps({"gate": False})  # a segment from the first sample to the end
LINEAR = {Encoding.MULAW: mulaw_value, Encoding.ALAW: alaw_value}


def audio_bytes(encoding: Encoding, samples: int, seed: int) -> bytes:
    """Samples that all differ, as an encoding writes them."""
    rng = np.random.default_rng(seed)
    if encoding is Encoding.PCM_F32LE:
        return rng.uniform(-1, 1, samples).astype("<f4").tobytes()
    return rng.bytes(samples * encoding.sample_bytes)


def linear(encoding: Encoding, data: bytes) -> np.ndarray:
    """The int16 samples of the bytes, by the rule of each encoding written out."""
    if encoding in LINEAR:
        return np.array([LINEAR[encoding](code) for code in data])
    if encoding is Encoding.PCM_U8:
        return (np.frombuffer(data, np.uint8).astype(int) - 128) * 256
    if encoding is Encoding.PCM_F32LE:
        scaled = np.frombuffer(data, "<f4").astype(np.float64) * 32768
        return np.clip(np.round(scaled), -32768, 32767)
    return np.frombuffer(data, ">i2" if encoding is Encoding.PCM_S16BE else "<i2")


def pieces(audio: bytes, edges: list[int]) -> list[bytes]:
    cuts = [0, *sorted(edge % (len(audio) + 1) for edge in edges), len(audio)]
    return [audio[a:b] for a, b in itertools.pairwise(cuts)]


def heard(encoding: Encoding, channels: int, parts: list[bytes]) -> tuple[list, dict]:
    """The final texts, which are digests of the samples, and the body of the ended event."""
    desk = Desk([])
    headers = {
        "encoding": encoding.value,
        "sample_rate": 8000,
        "channels": channels,
        "options": HEARD_WHOLE,
    }
    log: list[RawMessage] = [message("c", part, headers) for part in parts]
    desk.arrive(*log, control("c", "end"))
    desk.settle()
    finals = sorted(
        (final["channel"], final["start_sample"], final["alternatives"][0]["transcript"])
        for final in desk.transcripts()
    )
    (ended,) = desk.told("ended")
    return finals, ended


@pytest.mark.parametrize("channels", range(1, 9))
@pytest.mark.parametrize("encoding", list(Encoding))
@settings(deadline=None, max_examples=4)
@given(
    frames=st.integers(1, 300),
    extra=st.integers(0, 31),
    edges=st.lists(st.integers(0, 10_000), max_size=12),
    seed=st.integers(0, 2**16),
)
def test_a_session_hears_the_same_samples_wherever_its_messages_end(
    encoding, channels, frames, extra, edges, seed
):
    frame_bytes = channels * encoding.sample_bytes
    extra %= frame_bytes
    audio = audio_bytes(encoding, (frames + 1) * channels, seed)[: frames * frame_bytes + extra]
    whole = linear(encoding, audio[: frames * frame_bytes]).astype("<i2").tobytes()

    finals, ended = heard(encoding, channels, pieces(audio, edges))

    assert finals == heard(Encoding.PCM_S16LE, channels, [whole])[0]
    assert len(finals) == channels
    assert {total["received"]["samples"] for total in ended["totals"]} == {frames}
    assert ended["warnings"] == (["odd_bytes"] if extra else [])


@pytest.mark.parametrize("channels", [1, 2, 3, 8])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_messages_of_one_byte_say_what_one_message_says(encoding, channels):
    audio = audio_bytes(encoding, 12 * channels, seed=5)

    bytewise = heard(encoding, channels, [audio[i : i + 1] for i in range(len(audio))])
    whole = heard(encoding, channels, [audio])

    assert bytewise[0] == whole[0]
    assert bytewise[1]["totals"] == whole[1]["totals"]
