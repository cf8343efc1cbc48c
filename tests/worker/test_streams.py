"""A stream's samples depend on its bytes alone, wherever messages end and whoever reads them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio import pcm
from worker.streams import Anchor, MediaFormat, MessageContext, Received, Stream

FORMATS = [
    MediaFormat(encoding, 8000, width)
    for encoding in (pcm.Encoding.MULAW, pcm.Encoding.PCM_S16LE, pcm.Encoding.PCM_F32LE)
    for width in (1, 2, 3)
]


def stream_of(media: MediaFormat, anchor: Anchor | None = None) -> Stream:
    return Stream(media, 0, anchor or Anchor(), 0)


def audio_bytes(media: MediaFormat, frames: int, extra: int = 0, seed: int = 0) -> bytes:
    """Frames that all differ, and the beginning of one more."""
    rng = np.random.default_rng(seed)
    if media.encoding is pcm.Encoding.PCM_F32LE:
        values = rng.uniform(-1, 1, (frames + 1) * media.width).astype("<f4").tobytes()
    else:
        values = rng.bytes((frames + 1) * media.frame_bytes)
    return values[: frames * media.frame_bytes + extra]


def whole(media: MediaFormat, audio: bytes) -> list[np.ndarray]:
    frames = len(audio) // media.frame_bytes
    samples = pcm.decode(audio[: frames * media.frame_bytes], media.encoding)
    return [samples[channel :: media.width] for channel in range(media.width)]


@dataclass
class Taken:
    """A message as the stream took it, its anchor and what it decoded to."""

    received: Received
    anchor: Anchor
    start_sample: int
    samples: list[np.ndarray] = field(default_factory=list)


def take(stream: Stream, pieces: list[bytes], first_offset: int = 0) -> list[Taken]:
    taken = []
    for number, piece in enumerate(pieces):
        context = MessageContext.nothing(first_offset + number)
        received = stream.begin(context, None)
        before = stream.next_sample
        anchor = stream.anchor_of(received)
        taken.append(Taken(received, anchor, before, stream.decode(received, piece)))
    return taken


def split(audio: bytes, edges: list[int]) -> list[bytes]:
    cuts = [0, *sorted(edge % (len(audio) + 1) for edge in edges), len(audio)]
    return [audio[a:b] for a, b in itertools.pairwise(cuts)]


def joined(taken: list[Taken], width: int) -> list[np.ndarray]:
    return [np.concatenate([t.samples[c] for t in taken]) for c in range(width)]


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from(FORMATS),
    st.integers(0, 12),
    st.integers(0, 11),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_any_split_decodes_to_the_same_samples(media, frames, extra, edges):
    extra %= media.frame_bytes
    audio = audio_bytes(media, frames, extra)
    stream = stream_of(media)

    taken = take(stream, split(audio, edges))

    for found, expected in zip(joined(taken, media.width), whole(media, audio), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert stream.next_sample == frames
    assert stream.leftover_bytes == extra


@settings(deadline=None, max_examples=80)
@given(
    st.sampled_from(FORMATS),
    st.integers(1, 10),
    st.integers(0, 11),
    st.lists(st.integers(0, 200), min_size=1, max_size=10),
    st.integers(0, 1000),
)
def test_a_stream_rebuilt_from_any_anchor_decodes_the_same_samples(
    media, frames, extra, edges, which
):
    pieces = split(audio_bytes(media, frames, extra % media.frame_bytes), edges)
    taken = take(stream_of(media), pieces)
    begin = which % len(pieces)
    rebuilt = stream_of(media, taken[begin].anchor)

    again = take(rebuilt, pieces[begin:])

    first = taken[begin].anchor.sample
    for old, new in zip(joined(taken, media.width), joined(again, media.width), strict=True):
        np.testing.assert_array_equal(new, old[first:])
    assert [t.anchor for t in again] == [t.anchor for t in taken[begin:]]
    assert [t.received.hold_until for t in again] == [t.received.hold_until for t in taken[begin:]]


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(FORMATS), st.integers(0, 8), st.lists(st.integers(0, 200), min_size=1))
def test_the_next_anchor_is_that_of_the_message_that_comes_next(media, frames, edges):
    stream = stream_of(media)
    expected = stream.next_anchor()
    for piece in split(audio_bytes(media, frames), edges):
        (taken,) = take(stream, [piece])
        assert taken.anchor == expected
        expected = stream.next_anchor()


def test_messages_of_one_byte_make_frames():
    media = MediaFormat(pcm.Encoding.PCM_S16LE, 8000, 2)
    audio = audio_bytes(media, 3, 1)

    taken = take(stream_of(media), [audio[i : i + 1] for i in range(len(audio))])

    assert [t.received.start_sample for t in taken] == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert [t.received.skip_bytes for t in taken] == [0, 3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0]
    assert [t.received.hold_until for t in taken] == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]


def test_a_message_is_held_until_the_frame_that_begins_in_it_is_finished():
    media = MediaFormat(pcm.Encoding.PCM_S16LE, 8000, 1)

    first, second = take(stream_of(media), [b"\1\2\3", b"\4\5\6"])

    assert (first.received.start_sample, first.received.hold_until) == (0, 2)
    assert (second.received.start_sample, second.received.hold_until) == (2, 3)
    assert second.received.skip_bytes == 1


def test_a_message_of_no_bytes_takes_no_place_on_the_clock():
    stream = stream_of(MediaFormat(pcm.Encoding.MULAW, 8000, 1))

    (taken,) = take(stream, [b""])

    assert taken.received.hold_until == taken.received.start_sample == 0
    assert stream.next_sample == 0


def test_a_gap_names_the_missing_numbers_and_forgets_the_half_frame_before_it():
    media = MediaFormat(pcm.Encoding.PCM_S16LE, 8000, 1)
    stream = stream_of(media, Anchor(next_sequence=4))
    received = stream.begin(MessageContext.nothing(0), 4)
    stream.decode(received, b"\1\2\3")

    assert stream.gap_before(8) == (5, 7)
    after = stream.begin(MessageContext.nothing(1), 8)
    (samples,) = stream.decode(after, b"\x10\x20")

    assert samples.tolist() == [0x2010]
    assert (after.start_sample, after.skip_bytes) == (1, 0)
    assert stream.leftover_bytes == 0


def test_a_gap_forgets_the_bytes_that_a_rebuilt_stream_still_had_to_skip():
    media = MediaFormat(pcm.Encoding.PCM_S16LE, 8000, 2)
    stream = stream_of(media, Anchor(sample=9, skip_bytes=3, next_sequence=2))

    assert stream.gap_before(3) == (2, 2)
    received = stream.begin(MessageContext.nothing(0), 3)
    left, right = stream.decode(received, b"\1\0\2\0")

    assert (received.start_sample, left.tolist(), right.tolist()) == (9, [1], [2])


@pytest.mark.parametrize(("expected", "sequence"), [(None, 5), (5, None), (5, 5), (None, None)])
def test_there_is_no_gap_without_two_numbers_that_differ(expected, sequence):
    stream = stream_of(MediaFormat(pcm.Encoding.MULAW, 8000, 1), Anchor(next_sequence=expected))

    assert stream.gap_before(sequence) is None


def test_numbers_below_the_expected_one_are_duplicates():
    stream = stream_of(MediaFormat(pcm.Encoding.MULAW, 8000, 1))
    assert not stream.is_duplicate(0)

    stream.begin(MessageContext.nothing(0), 7)

    assert stream.is_duplicate(7)
    assert stream.is_duplicate(0)
    assert not stream.is_duplicate(8)
    assert not stream.is_duplicate(None)


def test_dropped_audio_is_counted_in_frames_and_belongs_to_the_anchor_of_the_next_message():
    stream = stream_of(MediaFormat(pcm.Encoding.PCM_S16LE, 8000, 2))

    assert stream.drop(401) == 100
    received = stream.begin(MessageContext.nothing(0), None)

    assert stream.anchor_of(received).dropped_samples == 100
    stream.drop(8)
    assert stream.anchor_of(received).dropped_samples == 100
    assert stream.next_anchor().dropped_samples == 102


def test_a_sample_has_the_context_of_the_message_that_holds_it():
    stream = stream_of(MediaFormat(pcm.Encoding.MULAW, 8000, 1))
    take(stream, [b"\0" * 10, b"", b"\0" * 5, b"\0"])

    offsets = [stream.context_at(sample).offset for sample in (0, 9, 10, 14, 15, 99)]

    assert offsets == [0, 0, 2, 2, 3, 3]
    assert stream_of(stream.media).context_at(0) is None


def test_a_sample_of_a_message_that_is_gone_has_the_context_of_the_oldest_one_left():
    stream = stream_of(MediaFormat(pcm.Encoding.MULAW, 8000, 1))
    take(stream, [b"\0" * 10, b"\0" * 10])
    stream.messages.popleft()

    assert stream.context_at(3).offset == 1
