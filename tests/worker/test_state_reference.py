"""A reference holds for its own commit alone, and names one value."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.metadata import MAX_CHARS, Place, seal
from worker.session_map import MapError
from worker.state_reference import (
    MAGIC,
    StateReference,
    decode_reference,
    encode_reference,
    reference_to,
)

PLACE = Place("VZ5a0VbTQHq7l9yEUuVdEg", 3, 48_213_907)
REFERENCE = StateReference(11, 900, 0xDEADBEEF)


@settings(deadline=None)
@given(
    st.builds(
        StateReference,
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**32 - 1),
    ),
    st.integers(0, 200),
)
def test_a_reference_comes_back_as_it_was_written(reference: StateReference, starts: int) -> None:
    text = encode_reference(reference, PLACE, starts)

    assert text.isascii()
    assert len(text) < 60 < MAX_CHARS
    assert decode_reference(text, PLACE) == (reference, starts)
    assert decode_reference(text + "\0", PLACE) == (reference, starts)


@pytest.mark.parametrize("text", [None, "", "oasr1:AAAA", "oasrf1:AAAA", "somebody else"])
def test_other_metadata_is_no_reference(text: str | None) -> None:
    assert decode_reference(text, PLACE) is None


@pytest.mark.parametrize(
    "place", [PLACE._replace(topic_id="x"), PLACE._replace(partition=4), Place(*PLACE[:2], 5)]
)
def test_a_reference_of_another_place_is_foreign(place: Place) -> None:
    with pytest.raises(MapError, match="checksum"):
        decode_reference(encode_reference(REFERENCE, PLACE, 0), place)


def test_every_wrong_character_and_every_truncation_spoils_it() -> None:
    text = encode_reference(REFERENCE, PLACE, 1)
    damaged = [text[:at] + "?" + text[at + 1 :] for at in range(len(MAGIC), len(text))]
    shorter = [text[:length] for length in range(len(MAGIC), len(text))]

    for wrong in damaged + shorter:
        with pytest.raises(MapError):
            decode_reference(wrong, PLACE)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=30))
def test_noise_under_a_right_checksum_is_refused_or_a_reference(payload: bytes) -> None:
    try:
        decoded = decode_reference(seal(MAGIC, payload, PLACE, 0), PLACE)
    except MapError:
        return

    assert decoded is not None
    assert decode_reference(encode_reference(decoded[0], PLACE, 0), PLACE) == decoded


def test_a_reference_names_one_value() -> None:
    reference = reference_to(b"map", 1, 2)

    assert reference == StateReference(1, 2, zlib.crc32(b"map"))
    assert reference.names(b"map")
    assert not reference.names(b"nap")
    assert not reference.names(b"")
