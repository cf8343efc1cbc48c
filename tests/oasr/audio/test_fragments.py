"""Pieces of containers, and chunks that say nothing: what is there is read, or refused by code."""

from __future__ import annotations

import numpy as np
import pytest

from oasr.audio.containers import read_blocks
from oasr.errors import AudioError
from tests.support.encoders import encoded
from tests.support.signals import speech
from tests.support.wav import PCM, chunk, fmt, riff

RATE = 16_000
CLUSTER = bytes.fromhex("1f43b675")
SPEECH = speech(6.0, RATE, seed=9).reshape(-1, 1)


def read(data: bytes) -> np.ndarray:
    info, blocks = read_blocks(data)
    return np.concatenate([np.zeros((0, info.channels), np.int16), *blocks])


def live_webm() -> bytes:
    """As a browser streams it: nothing says how long the segment or its clusters are."""
    data = encoded(SPEECH, RATE, "webm", "libopus", {"live": "1", "cluster_time_limit": "1000"})
    assert data.count(CLUSTER) > 2
    return data


def test_clusters_of_unknown_size_are_read_to_the_last() -> None:
    heard = read(live_webm())

    # Opus comes at 48 kHz whatever was encoded
    assert len(heard) == pytest.approx(6.0 * 48_000, abs=0.1 * 48_000)


def test_a_fragment_with_the_header_before_it_is_read_alone() -> None:
    data = live_webm()
    first, second = data.index(CLUSTER), data.index(CLUSTER, data.index(CLUSTER) + 4)

    heard = read(data[:second])

    assert 0 < len(heard) < 3 * 48_000
    assert first < second


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_fragment_without_a_header_is_refused_and_ends_nothing(number: int) -> None:
    data = live_webm()
    at = -1
    for _ in range(number + 1):
        at = data.index(CLUSTER, at + 1)

    with pytest.raises(AudioError) as refused:
        read(data[at:])

    assert refused.value.code == "container_invalid"


@pytest.mark.parametrize("body", [b"", b"IN", b"odd", b"INFO", b"INFOICMT", b"INFOx"])
@pytest.mark.parametrize("name", [b"LIST", b"JUNK", b"fact", b"bext", b"cue "])
def test_chunks_before_the_data_are_stepped_over_whatever_is_in_them(
    name: bytes, body: bytes
) -> None:
    samples = SPEECH[:1_000]
    data = samples.astype("<i2").tobytes()

    heard = read(riff(fmt(PCM, 1, RATE, 16), chunk(name, body), chunk(b"data", data)))

    np.testing.assert_array_equal(heard, samples)
