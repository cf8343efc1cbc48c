"""A replay sends what was refused, byte for byte, or says why it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.letters import FakeTopic, letter_of, on_topic, refused
from tests.support.messages import audio_message, message
from worker.dead_letter_read import Kept, Selection, read_letter
from worker.dead_letter_replay import (
    Handled,
    NotReplayable,
    ReplayRules,
    outgoing,
    selected,
    whole,
)
from worker.dead_letters import OUR_HEADERS, Refusal, build, of_segment
from worker.errors import ErrorCode
from worker.messages import RawMessage
from worker.producer import smaller
from worker.records import Segment
from worker.records import Source as SegmentSource

RULES = ReplayRules(frozenset(("calls", "files")))
HOSTILE = (("x", b"\xff\xfe"), ("x", None), ("", b""), ("x", b"\xff\xfe"), ("ü", b"\0"))


def nothing(topic: str, partition: int, offset: int) -> RawMessage | None:
    raise AssertionError(f"{topic}:{partition}:{offset} was asked for")


@pytest.mark.parametrize("key", [b"call-1", None, b"", b"\xff\x00"])
@pytest.mark.parametrize("value", [b"\x01\x02", b"", None])
def test_key_value_and_headers_go_out_as_they_came(key: bytes | None, value: bytes | None) -> None:
    raw = message(value, key, HOSTILE, encoding="opus")

    sent = outgoing(letter_of(raw), RULES, nothing)

    assert (sent.topic, sent.key, sent.value) == ("calls", key, value)
    assert sent.headers == (*raw.headers, ("replay.attempts", b"1"))


@settings(deadline=None, max_examples=200)
@given(
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=3000),
    headers=st.lists(
        st.tuples(
            st.text(max_size=8) | st.sampled_from(sorted(OUR_HEADERS)),
            st.none() | st.binary(max_size=900),
        ),
        max_size=12,
    ),
    topic_takes=st.booleans(),
)
def test_whatever_a_message_holds_its_replay_is_the_message(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    topic_takes: bool,
) -> None:
    raw = RawMessage("calls", 2, 7, 1_700_000_000_123, key, value, tuple(headers))
    record = refused(raw, max_bytes=10_000)
    letter = read_letter(on_topic(record if topic_takes else smaller(record)))
    assert letter is not None

    found = whole(letter, lambda *place: raw if place == ("calls", 2, 7) else None)

    kept = tuple(header for header in headers if header[0] not in OUR_HEADERS)
    assert found == (key, value, kept)


def test_each_replay_counts_until_there_were_enough() -> None:
    raw = audio_message()
    for attempts in (1, 2):
        letter = letter_of(raw)
        assert letter.attempts == attempts
        sent = outgoing(letter, RULES, nothing)
        raw = replace(raw, key=sent.key, value=sent.value, headers=sent.headers)

    third = letter_of(raw)

    assert third.headers == audio_message().headers
    with pytest.raises(NotReplayable, match="tried 3 times"):
        outgoing(third, RULES, nothing)
    assert outgoing(third, replace(RULES, max_attempts=4), nothing).headers[-1][1] == b"3"


def test_a_replay_may_go_to_another_topic() -> None:
    assert outgoing(letter_of(message()), replace(RULES, to="second"), nothing).topic == "second"


def test_a_letter_of_a_foreign_topic_goes_nowhere() -> None:
    letter = letter_of(replace(message(), topic="accounts"))

    with pytest.raises(NotReplayable, match="not come from"):
        outgoing(letter, replace(RULES, to="calls"), nothing)


class TestReferences:
    RAW = audio_message(b"\x07" * 60_000, extra=HOSTILE)

    def letter(self) -> Any:
        return letter_of(self.RAW, max_bytes=50_000)

    def test_the_original_is_fetched_from_its_topic(self) -> None:
        letter = self.letter()
        assert letter.kept is Kept.REFERENCE

        key, value, headers = whole(letter, FakeTopic([], [self.RAW]).original)

        assert (key, value, headers) == (self.RAW.key, self.RAW.value, self.RAW.headers)

    def test_an_original_that_is_gone_is_told(self) -> None:
        with pytest.raises(NotReplayable, match="any more"):
            whole(self.letter(), FakeTopic([]).original)

    @pytest.mark.parametrize(
        "other",
        [
            replace(RAW, value=b"\x08" * 60_000),
            replace(RAW, value=None),
            replace(RAW, key=b"somebody"),
            replace(RAW, timestamp_ms=5),
        ],
        ids=["value", "null", "key", "time"],
    )
    def test_another_message_in_its_place_is_not_taken_for_it(self, other: RawMessage) -> None:
        with pytest.raises(NotReplayable, match="another message"):
            whole(self.letter(), FakeTopic([], [other]).original)

    @pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b'{"sha256": 1}'])
    def test_a_reference_that_says_nothing_refers_to_nothing(self, value: bytes) -> None:
        letter = replace(self.letter(), value=value)

        with pytest.raises(NotReplayable, match="another message"):
            whole(letter, FakeTopic([], [self.RAW]).original)


def test_headers_and_keys_that_were_cut_come_back_from_the_topic() -> None:
    raw = RawMessage("calls", 2, 7, 9, b"k" * 300_000, b"v", (("big", b"x" * 700_000),))
    letter = letter_of(raw)
    assert (letter.key_truncated, letter.headers_dropped, letter.kept) == (True, True, Kept.WHOLE)

    assert whole(letter, FakeTopic([], [raw]).original) == (raw.key, raw.value, raw.headers)
    with pytest.raises(NotReplayable, match="any more"):
        whole(letter, FakeTopic([]).original)


def test_headers_that_nobody_can_read_cannot_be_sent() -> None:
    raw = RawMessage("calls", 2, 7, 9, b"k", b"v", (), headers_readable=False)

    with pytest.raises(NotReplayable, match="headers cannot be read"):
        whole(letter_of(raw), FakeTopic([], [raw]).original)


def test_a_value_that_the_topic_did_not_take_comes_back_from_its_own() -> None:
    raw = audio_message(b"\x05" * 500)
    letter = read_letter(on_topic(smaller(refused(raw))))
    assert letter is not None
    assert letter.kept is Kept.DROPPED

    assert whole(letter, FakeTopic([], [raw]).original)[1] == raw.value


def test_a_segment_is_no_message() -> None:
    segment = Segment("call-1", "2-7", 1, 2, None, 4, 8, 16, 8000, SegmentSource("calls", 2, 9, 11))
    record = of_segment(segment, Refusal(ErrorCode.CRASHED_WORKER, "", "engine"), 1, 5)
    letter = read_letter(on_topic(record))
    assert letter is not None
    assert letter.kept is Kept.SEGMENT

    with pytest.raises(NotReplayable, match="segment"):
        whole(letter, nothing)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("error.code", b"odd_bytes"),),
        (("error.code", None), ("source.topic", b"calls"), ("source.partition", b"0")),
        (
            *(("error.code", b"odd_bytes"), ("source.topic", b"calls")),
            *(("source.partition", b"one"), ("source.offset", b"\xd9\xa3")),
        ),
    ],
)
def test_what_is_no_dead_letter_is_none(headers: Any) -> None:
    assert read_letter(RawMessage("dead", 0, 1, 2, b"k", b"v", headers)) is None


class TestSelection:
    def letters(self) -> list[RawMessage]:
        first = refused(audio_message())
        second = build(message(b"", b"f\xff"), Refusal(ErrorCode.INVALID_FILE_JOB, "", "codec"), 5)
        other = refused(replace(message(), topic="files", offset=8))
        return [
            on_topic(first, 0, time_ms=100),
            on_topic(first, 1, time_ms=200),  # a repeat of the worker's
            on_topic(second, 2, time_ms=300),
            RawMessage("dead", 0, 3, 400, b"k", b"no letter", ()),
            on_topic(other, 4, time_ms=500),
        ]

    @pytest.mark.parametrize(
        ("selection", "offsets"),
        [
            (Selection(), [0, 2, 4]),
            (Selection(codes=frozenset(("invalid_file_job",))), [2]),
            (Selection(codes=frozenset(("invalid_file_job", "encoding_required"))), [0, 2, 4]),
            (Selection(topic="files"), [4]),
            (Selection(key="call-1"), [0, 4]),
            (Selection(key="f\\xff"), [2]),
            (Selection(since_ms=300), [2, 4]),
            (Selection(since_ms=101, until_ms=500), [1, 2]),
            (Selection(places=frozenset(((0, 4), (1, 0)))), [4]),
        ],
    )
    def test_it_has_what_fits_and_of_repeats_the_first(
        self, selection: Selection, offsets: list[int]
    ) -> None:
        handled = Handled()

        found = list(selected(self.letters(), selection, handled))

        assert [letter.offset for letter in found] == offsets
        for letter in found:
            handled.done(letter.partition, letter.offset)
        assert handled.up_to() == {0: 4}


def test_a_position_stands_before_the_first_that_is_not_done() -> None:
    handled = Handled()
    for partition, offset in ((0, 3), (0, 7), (1, 0), (0, 8)):
        handled.begin(partition, offset)
    handled.done(0, 7)
    assert handled.up_to() == {0: 2, 1: -1}

    handled.done(0, 3)
    assert handled.up_to() == {0: 7, 1: -1}
    handled.done(0, 8)
    handled.done(1, 0)
    assert handled.up_to() == {0: 8, 1: 0}
