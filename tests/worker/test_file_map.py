"""The map of the file topic: what is finished above the watermark, and how far the rest is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.file_map import FileMap, decode_file_metadata, encode_file_metadata
from worker.metadata import MAX_CHARS
from worker.session_map import MapError
from worker.session_map_codec import decode_metadata, encode_metadata

TOPIC = "files-id"


@st.composite
def file_maps(draw):
    committed = draw(st.integers(0, 2**60))
    gaps = draw(st.lists(st.integers(0, 50), max_size=12))
    finished, published = [], []
    offset = committed
    for number, gap in enumerate(gaps):
        offset += gap + (number > 0)
        if offset > committed and draw(st.booleans()):
            finished.append(offset)
        else:
            far = draw(st.lists(st.integers(0, 2**40), max_size=3))
            published.append((offset, tuple(far)))
    return committed, FileMap(tuple(finished), tuple(published))


@settings(deadline=None, max_examples=200)
@given(file_maps(), st.integers(0, 20))
def test_a_file_map_comes_back_as_it_was_written(committed_and_map, starts):
    committed, written = committed_and_map

    text = encode_file_metadata(written, TOPIC, 1, committed, starts)

    assert decode_file_metadata(text, TOPIC, 1, committed) == (written, starts)


def test_a_commit_without_metadata_has_no_file_map():
    assert decode_file_metadata(None, TOPIC, 0, 3) == (None, 0)
    counted = encode_file_metadata(None, TOPIC, 0, 3, start_counter=2)
    assert decode_file_metadata(counted, TOPIC, 0, 3) == (None, 2)


def test_every_wrong_character_and_every_truncation_spoils_the_file_map():
    text = encode_file_metadata(FileMap((12, 15), ((10, (800, 0)), (13, (9,)))), TOPIC, 0, 10)
    for at in range(len(text)):
        for other in "Aa0+/=:\0é":
            if other != text[at]:
                with pytest.raises(MapError):
                    decode_file_metadata(text[:at] + other + text[at + 1 :], TOPIC, 0, 10)
        if at:
            with pytest.raises(MapError):
                decode_file_metadata(text[:at], TOPIC, 0, 10)


@pytest.mark.parametrize("place", [("other", 0, 10), (TOPIC, 1, 10), (TOPIC, 0, 11)])
def test_a_file_map_of_another_place_is_foreign(place):
    text = encode_file_metadata(FileMap((12,)), TOPIC, 0, 10)

    with pytest.raises(MapError):
        decode_file_metadata(text, *place)


def test_the_maps_of_the_two_topics_are_not_taken_for_each_other():
    files = encode_file_metadata(FileMap((12,)), TOPIC, 0, 10)
    chunks = encode_metadata(None, TOPIC, 0, 10)

    with pytest.raises(MapError):
        decode_metadata(files, TOPIC, 0, 10)
    with pytest.raises(MapError):
        decode_file_metadata(chunks, TOPIC, 0, 10)


@pytest.mark.parametrize(
    "impossible",
    [
        FileMap(finished=(10,)),  # the committed offset itself
        FileMap(finished=(13, 12)),
        FileMap(published=((9, (1,)),)),
        FileMap(published=((12, (1,)), (12, (2,)))),
        FileMap(finished=(12,), published=((12, (1,)),)),
        FileMap(published=((12, (1, -1)),)),
    ],
)
def test_an_impossible_file_map_is_not_written(impossible):
    with pytest.raises(ValueError, match="impossible map"):
        encode_file_metadata(impossible, TOPIC, 0, 10)


def test_a_file_map_has_any_size():
    contents = FileMap(tuple(range(11, 9_000, 2)))

    text = encode_file_metadata(contents, TOPIC, 0, 10)

    assert len(text) > MAX_CHARS
    assert decode_file_metadata(text, TOPIC, 0, 10) == (contents, 0)
