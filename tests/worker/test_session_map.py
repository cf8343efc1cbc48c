"""A map comes back as it was written, for its own topic, partition and offset alone."""

from __future__ import annotations

import base64
import dataclasses
import random
import string
import zlib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from worker.metadata import MAX_CHARS, Place, Writer, seal
from worker.session_map import (
    ChannelEntry,
    Dropped,
    MapError,
    PendingCut,
    SessionEntry,
    SessionMap,
    StreamEntry,
    key_hash,
)
from worker.session_map_codec import MAGIC, MAGIC_2, decode_metadata, encode_metadata

TOPIC = "VZ5a0VbTQHq7l9yEUuVdEg"
ENCODINGS = ("pcm_s16le", "pcm_s16be", "pcm_f32le", "pcm_u8", "mulaw", "alaw")
REASONS = (
    *("silence", "max_length", "flush", "end", "idle"),
    *("ttl", "format_change", "shed", "error", "window"),
)
counts = st.one_of(st.integers(0, 300), st.integers(0, 2**40))


def stereo_call(generator: random.Random, committed: int, number: int) -> SessionEntry:
    """A call of 8 kHz stereo chunks of 100 ms, some minutes old, in the middle of utterances."""
    age_s = generator.randrange(60, 900)
    start_sample = age_s * 8_000 - generator.randrange(160_000)
    first_open = committed + generator.randrange(50 * 200)

    def entry(channel: int) -> ChannelEntry:
        resume = start_sample + generator.randrange(100_000)
        decoded = generator.randrange(resume)
        index = age_s // 8
        finals = index - generator.randrange(3)
        return ChannelEntry(channel, resume, index, finals, decoded, resume - decoded)

    stream = StreamEntry(
        first_open=first_open,
        next_sequence=start_sample // 800,
        start_sample=start_sample,
        skip_bytes=0,
        media_rate=8_000,
        encoding="mulaw",
        channels=2,
        entries=(entry(0), entry(1)),
    )
    return SessionEntry(key_hash(b"call-%d" % number), committed - age_s * 500, streams=(stream,))


def busy_map(calls: int, committed: int = 48_213_907) -> SessionMap:
    generator = random.Random(7)
    sessions = tuple(stereo_call(generator, committed, number) for number in range(calls))
    return SessionMap(committed + 11_000, sessions, (committed + 3, committed + 900), ())


@st.composite
def maps(draw):
    committed = draw(st.integers(0, 2**60))
    highest = committed - 1 + draw(st.integers(0, 2**20))
    offsets = st.integers(committed, highest) if highest >= committed else st.nothing()

    def some_offsets():
        if highest < committed:
            return ()
        return tuple(sorted(draw(st.sets(offsets, max_size=5))))

    sessions = draw(
        st.lists(
            session_entries(committed, highest),
            max_size=4,
            unique_by=lambda entry: (entry.key_hash, entry.origin),
        )
        if highest >= 0
        else st.just([])
    )
    return committed, SessionMap(highest, tuple(sessions), some_offsets(), some_offsets())


@st.composite
def session_entries(draw, committed, highest):
    key = draw(st.one_of(st.none(), st.binary(min_size=1, max_size=20)))
    channels = draw(st.lists(st.integers(0, 7), unique=True, max_size=4))
    streams = []
    if channels:
        cut = draw(st.integers(1, len(channels)))
        streams = [channels[:cut], channels[cut:]] if cut < len(channels) else [channels]
    return SessionEntry(
        key_hash=draw(st.integers(0, 2**48 - 1)) if key is None else key_hash(key),
        origin=draw(st.integers(0, highest)),
        position_ms=draw(counts),
        from_sample=draw(st.one_of(st.none(), counts)),
        dropped=tuple(draw(st.lists(st.builds(Dropped, counts, counts, counts), max_size=2))),
        streams=tuple(draw(stream_entries(committed, highest, listed)) for listed in streams),
        closed_behind=draw(st.one_of(st.none(), st.integers(0, highest))),
        second_pass=draw(st.booleans()),
        key=key,
    )


@st.composite
def stream_entries(draw, committed, highest, channels):
    first_open = st.none()
    if highest >= committed:
        first_open = st.one_of(st.none(), st.integers(committed, highest))
    first = draw(first_open)
    moments = st.integers(2 * committed, 2 * highest + 2) if first is not None else st.nothing()
    return StreamEntry(
        first_open=first,
        next_sequence=draw(st.one_of(st.none(), counts)),
        start_sample=draw(counts),
        skip_bytes=draw(st.integers(0, 64)),
        media_rate=draw(st.one_of(st.sampled_from([8_000, 11_025, 44_100]), st.integers(1, 10**6))),
        encoding=draw(st.sampled_from(ENCODINGS)),
        channels=draw(st.integers(1, 8)),
        entries=tuple(draw(channel_entries(highest, channel)) for channel in channels),
        moment=draw(st.one_of(st.none(), moments)),
    )


@st.composite
def channel_entries(draw, highest, channel):
    resume = draw(counts)
    index = draw(st.integers(0, 2**20))
    pending = None
    if draw(st.booleans()):
        pending = PendingCut(
            kind=draw(st.sampled_from(["cut", "end"])),
            reason=draw(st.sampled_from(REASONS)),
            sample=resume + draw(counts),
            last_offset=draw(st.integers(0, highest)),
        )
    return ChannelEntry(
        channel=channel,
        resume_sample=resume,
        segment_index=index,
        finals=draw(st.integers(0, index)),
        decoded_samples=draw(counts),
        silence_samples=draw(counts),
        pending=pending,
        filled_samples=draw(counts),
    )


@settings(deadline=None, max_examples=200)
@given(maps(), st.integers(0, 1000))
def test_a_map_comes_back_as_it_was_written(committed_and_map, starts):
    committed, written = committed_and_map

    text = encode_metadata(written, TOPIC, 3, committed, starts)

    assert text.isascii()
    assert "\0" not in text
    assert decode_metadata(text, TOPIC, 3, committed) == (written, starts)
    assert decode_metadata(text + "\0", TOPIC, 3, committed) == (written, starts)


@pytest.mark.parametrize("text", ["", None])
def test_a_commit_without_metadata_has_no_map(text):
    assert decode_metadata(text, TOPIC, 0, 12) == (None, 0)


def test_the_start_counter_travels_without_a_map():
    text = encode_metadata(None, TOPIC, 0, 12, start_counter=4)

    assert decode_metadata(text, TOPIC, 0, 12) == (None, 4)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_single_wrong_character_spoils_the_map(data):
    text = encode_metadata(busy_map(2), TOPIC, 0, 48_213_907, 1)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(exclude_characters=text[at]))
    damaged = text[:at] + other + text[at + 1 :]

    with pytest.raises(MapError):
        decode_metadata(damaged, TOPIC, 0, 48_213_907)


def test_a_wrong_character_at_every_place_spoils_the_map():
    text = encode_metadata(busy_map(1), TOPIC, 0, 48_213_907)
    tried = 0
    for at in range(len(text)):
        for other in "AQgw59+/=:\n ":
            if other != text[at]:
                tried += 1
                with pytest.raises(MapError):
                    decode_metadata(text[:at] + other + text[at + 1 :], TOPIC, 0, 48_213_907)

    assert tried > 500


def test_every_truncation_spoils_the_map():
    text = encode_metadata(busy_map(2), TOPIC, 0, 48_213_907)
    for length in range(1, len(text)):
        with pytest.raises(MapError):
            decode_metadata(text[:length], TOPIC, 0, 48_213_907)


@pytest.mark.parametrize(
    ("topic", "partition", "offset"),
    [("another", 0, 48_213_907), (TOPIC, 1, 48_213_907), (TOPIC, 0, 48_213_906)],
)
def test_a_map_of_another_topic_partition_or_offset_is_foreign(topic, partition, offset):
    text = encode_metadata(busy_map(2), TOPIC, 0, 48_213_907)

    with pytest.raises(MapError, match="checksum"):
        decode_metadata(text, topic, partition, offset)


@pytest.mark.parametrize(
    "text",
    [
        "AgAAAYzq1Wk=",  # the timestamp that Kafka Streams commits
        "bgAAAAAAAAAA",  # a run-length offset map of another library
        "null",
        "oasr1",
        MAGIC,
        MAGIC + "AAAA",
        MAGIC + "ä",
        "\ud800",
        "x" * 4096,
    ],
)
def test_metadata_of_somebody_else_is_refused(text):
    with pytest.raises(MapError):
        decode_metadata(text, TOPIC, 0, 12)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.text(alphabet=string.ascii_letters + string.digits + "+/=:")))
def test_garbage_is_never_another_exception(text):
    assume(text.strip("\0"))
    for candidate in (text, MAGIC + text):
        with pytest.raises(MapError):
            decode_metadata(candidate, TOPIC, 0, 12)


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=60))
def test_a_payload_of_noise_under_a_right_checksum_is_refused_or_a_possible_map(payload):
    """The checksum is no excuse: a bug in a writer must not crash or mislead a reader."""
    text = seal(MAGIC, payload, Place(TOPIC, 0, 12), 0)
    try:
        decoded, _ = decode_metadata(text, TOPIC, 0, 12)
    except MapError:
        return

    if decoded is not None:
        again = encode_metadata(decoded, TOPIC, 0, 12)
        assert decode_metadata(again, TOPIC, 0, 12) == (decoded, 0)


def test_the_checksum_is_crc32_of_the_body_after_the_place():
    text = encode_metadata(None, "topic", 2, 300, start_counter=1)
    data = base64.b64decode(text.removeprefix(MAGIC) + "=" * (-len(text.removeprefix(MAGIC)) % 4))

    assert data[:-4] == bytes([1, 0])
    assert int.from_bytes(data[-4:], "big") == zlib.crc32(b"topic\x002\x00300" + data[:-4])


def good_map() -> SessionMap:
    entry = ChannelEntry(0, 900, 2, 2, 400, 500, PendingCut("cut", "idle", 1_000, 105))
    stream = StreamEntry(101, 7, 800, 0, 8_000, "mulaw", 1, (entry,), 203)
    return SessionMap(110, (SessionEntry(1, 50, streams=(stream,)),), (100, 103), (103,))


def test_a_map_without_reorderings_is_one_that_former_versions_read():
    plain = altered(moment=None)

    assert encode_metadata(plain, TOPIC, 0, 100).startswith(MAGIC)
    assert encode_metadata(good_map(), TOPIC, 0, 100).startswith(MAGIC_2)
    assert encode_metadata(altered(filled_samples=5), TOPIC, 0, 100).startswith(MAGIC_2)
    assert encode_metadata(None, TOPIC, 0, 100).startswith(MAGIC)


def altered(**changes):
    """The good map with one field of one of its parts changed."""
    good = good_map()
    session = good.sessions[0]
    stream = session.streams[0]
    entry = stream.entries[0]
    assert entry.pending is not None
    pick = {
        field.name: part
        for part in (entry.pending, entry, stream, session, good)
        for field in dataclasses.fields(part)
    }
    pick |= {"pending_sample": entry.pending, "position_ms": session}
    for name, value in changes.items():
        changed = dataclasses.replace(pick[name], **{name.removeprefix("pending_"): value})
        for part in (entry.pending, entry, stream, session, good):
            if part is not pick[name]:
                continue
            if part is entry.pending:
                changed, part = dataclasses.replace(entry, pending=changed), entry
            if part is entry:
                changed, part = dataclasses.replace(stream, entries=(changed,)), stream
            if part is stream:
                changed, part = dataclasses.replace(session, streams=(changed,)), session
            if part is session:
                changed = dataclasses.replace(good, sessions=(changed,))
            break
        good = changed
    return good


IMPOSSIBLE = {
    "the highest received lies below the commit": {"highest": 98},
    "a first open offset below the commit": {"first_open": 99},
    "a first open offset never received": {"first_open": 111},
    "open offsets out of order": {"open_offsets": (103, 100)},
    "an open offset twice": {"open_offsets": (103, 103)},
    "an open offset below the commit": {"open_offsets": (99, 103)},
    "an open offset never received": {"open_offsets": (100, 111)},
    "a published offset never received": {"published": (111,)},
    "an origin never received": {"origin": 111},
    "more finals than segments": {"finals": 3},
    "a pending cut before the last cut": {"pending_sample": 899},
    "a pending cut in the future": {"last_offset": 111},
    "a moment before the commit": {"moment": 199},
    "a moment after all that was received": {"moment": 223},
    "a moment without an open message": {"first_open": None},
    "a closure in the future": {"closed_behind": 111},
    "a rate of zero": {"media_rate": 0},
    "no channels": {"channels": 0},
}


@pytest.mark.parametrize("changes", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_a_map_that_no_owner_could_have_written_is_neither_written_nor_read(changes):
    decode_metadata(encode_metadata(good_map(), TOPIC, 0, 100), TOPIC, 0, 100)
    bad = altered(**changes)

    with pytest.raises(ValueError, match="impossible map"):
        encode_metadata(bad, TOPIC, 0, 100)


@pytest.mark.parametrize(
    "duplicate",
    [
        lambda good: dataclasses.replace(good, sessions=good.sessions * 2),
        lambda good: dataclasses.replace(
            good,
            sessions=(dataclasses.replace(good.sessions[0], streams=good.sessions[0].streams * 2),),
        ),
    ],
    ids=["a session", "a channel"],
)
def test_nothing_is_listed_twice(duplicate):
    with pytest.raises(ValueError, match="listed twice"):
        encode_metadata(duplicate(good_map()), TOPIC, 0, 100)


def test_a_reader_refuses_an_impossible_map_under_a_right_checksum():
    writer = Writer()
    writer.unsigned(1)  # a map
    writer.unsigned(3)  # highest = 102
    writer.unsigned(2, 1, 0)  # open offsets 101 and 101
    writer.unsigned(0, 0)  # nothing published, no sessions
    text = seal(MAGIC, bytes(writer.data), Place(TOPIC, 0, 100), 0)

    with pytest.raises(MapError, match="not ascending"):
        decode_metadata(text, TOPIC, 0, 100)


def test_fifty_stereo_calls_fit_in_the_metadata_of_a_commit():
    committed = 48_213_907

    text = encode_metadata(busy_map(50, committed), TOPIC, 0, committed)

    assert len(text) <= MAX_CHARS
    assert decode_metadata(text, TOPIC, 0, committed) == (busy_map(50, committed), 0)


def test_two_hundred_stereo_calls_do_not_and_come_back_all_the_same():
    committed = 48_213_907

    text = encode_metadata(busy_map(200, committed), TOPIC, 0, committed)

    assert len(text) > MAX_CHARS
    assert decode_metadata(text, TOPIC, 0, committed) == (busy_map(200, committed), 0)


def test_a_key_hash_is_the_first_48_bits_that_blake2b_gives_for_six_bytes():
    assert key_hash(b"call-1") == key_hash(b"call-1") != key_hash(b"call-2")
    assert 0 <= key_hash(b"") < 2**48
