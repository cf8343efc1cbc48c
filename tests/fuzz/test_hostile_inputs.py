"""What is nearly right, and what is not at all: each input has one of the documented outcomes.

`make fuzz` goes on where these stop.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz_calls import check_log, hostile_log
from tests.support.fuzz_cli import numbers, one_chunk, one_job, recordings, uris
from tests.support.fuzz_files import check_file, damaged, seeds
from tests.support.fuzz_messages import (
    CHUNK_CODES,
    DEFAULTS,
    JOB_CODES,
    check_chunk,
    check_file_message,
)
from tests.support.fuzz_uris import CODES
from worker.codec import ChunkDefaults
from worker.dead_letters import OUR_HEADERS
from worker.fields import Event
from worker.messages import RawMessage

NAMES = ("encoding", "sample_rate", "channels", "channel", "roles", "sequence", "position_ms")
NAMES += ("event", "options", "priority", "traceparent", "content-type", *sorted(OUR_HEADERS))
TOMBSTONE = "tombstone"

messages = st.builds(
    RawMessage,
    topic=st.just("chunks"),
    partition=st.just(0),
    offset=st.integers(0, 9),
    timestamp_ms=st.integers(0, 2_000_000_000_000),
    key=st.none() | st.binary(max_size=260) | st.just(b"call-1"),
    value=st.none() | st.binary(max_size=300),
    headers=st.lists(
        st.tuples(
            st.sampled_from(NAMES) | st.text(max_size=6),
            st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode),
        ),
        max_size=8,
    ).map(tuple),
)


def test_chunks_that_are_nearly_right_become_every_thing_that_a_chunk_can_become() -> None:
    outcomes, failures = numbers(0, 6_000, one_chunk)

    assert failures == []
    assert set(outcomes) == {TOMBSTONE, *Event, *CHUNK_CODES}


def test_headers_that_no_dead_letter_holds_come_back_from_the_source() -> None:
    raw = RawMessage("chunks", 0, 0, 1, b"k", b"x", (("x", b"x" * 1_020_000),))

    assert check_chunk(raw, DEFAULTS[0]) == "encoding_required"


def test_file_messages_that_are_nearly_right_become_every_thing_that_they_can() -> None:
    outcomes, failures = numbers(0, 4_000, one_job)

    assert failures == []
    assert set(outcomes) == {TOMBSTONE, "claim", "file", *JOB_CODES}


def test_no_uri_leads_out_of_what_is_allowed_whatever_servers_answer() -> None:
    outcomes, failures = uris(0, 2_000)

    assert failures == []
    assert set(outcomes) >= {*CODES, "read file", "read https", "read s3"} - {"fetch_unavailable"}


@settings(deadline=None, max_examples=150)
@given(raw=messages, number=st.integers(0, len(DEFAULTS) - 1))
def test_any_message_is_a_chunk_or_a_dead_letter(raw: RawMessage, number: int) -> None:
    check_chunk(raw, DEFAULTS[number])


@settings(deadline=None, max_examples=100)
@given(raw=messages)
def test_any_message_is_a_file_job_or_a_dead_letter(raw: RawMessage) -> None:
    check_file_message(raw)


@settings(deadline=None, max_examples=150)
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from((*NAMES, "audio", "uri")), inner, max_size=5)
        ),
        max_leaves=12,
    ),
    shape=st.sampled_from(("application/json", "application/vnd.twilio.media+json", "")),
)
def test_any_json_is_a_chunk_or_a_dead_letter(body: object, shape: str) -> None:
    value = json.dumps(body).encode()  # also NaN and numbers of any size
    headers = (("content-type", shape.encode()),)
    check_chunk(RawMessage("chunks", 0, 0, 1, b"k", value, headers), ChunkDefaults())
    check_file_message(RawMessage("files", 0, 0, 1, b"k", value, headers))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1 << 32))
def test_a_partition_gets_to_the_end_of_any_log(seed: int) -> None:
    rng = random.Random(seed)
    check_log(hostile_log(rng), rng)


def test_hostile_logs_hold_what_they_are_meant_to() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(8):
        rng = random.Random(seed)
        desk = check_log(hostile_log(rng), rng)
        outcomes.update(desk.counts.outcomes)
        outcomes.update(event for event in ("gap", "resumed") if desk.told(event))

    assert {"ok", "dead_letter", "duplicate", "ignored", "gap", "resumed"} <= set(outcomes)


@pytest.mark.parametrize("number", range(21))
def test_a_whole_recording_is_read(number: int) -> None:
    assert check_file(seeds()[number]) == "read"
    assert len(seeds()) == 21


def test_damaged_recordings_are_read_as_far_as_they_go_or_refused() -> None:
    # in a child process: a native decoder that crashes is a failure and not the end of the run
    outcomes, failures = recordings(0, 400)

    assert failures == []
    assert set(outcomes) >= {"read", "broken off", "container_invalid"}
    assert sum(outcomes.values()) == 400


def test_the_same_number_is_the_same_recording() -> None:
    assert damaged(random.Random(5)) == damaged(random.Random(5))
