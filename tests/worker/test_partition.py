"""What a partition does with a message, and which offset it lets go."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.calls import chunk, control, hushed, message, spoken
from tests.support.partitions import TOPIC_ID, Committed, Desk, header
from worker.messages import RawMessage
from worker.session_map_codec import decode_metadata

GOOD = {"encoding": "mulaw", "sample_rate": 8000}


def keyless() -> RawMessage:
    return replace(chunk("c", b"\0"), key=None)


REFUSED = {
    "key_required": keyless(),
    "key_invalid": replace(chunk("c", b"\0"), key=b"\xff"),
    "value_too_large": chunk("bad", b"\0" * (1 << 20) + b"\0"),
    "header_too_large": chunk("bad", b"\0", roles="x" * 2000),
    "invalid_header": chunk("bad", b"\0", sequence="-1"),
    "invalid_envelope": message("bad", b"[]", {"content-type": "application/json"}),
    "encoding_required": message("bad", b"\0", {"sample_rate": 8000}),
    "encoding_unsupported": message("bad", b"\0", {"encoding": "opus", "sample_rate": 8000}),
    "sample_rate_required": message("bad", b"\0", {"encoding": "mulaw"}),
    "invalid_options": chunk("bad", b"\0", options="{"),
    "option_unsupported": chunk("bad", b"\0", options='{"sing": true}'),
}


@pytest.mark.parametrize("code", REFUSED)
def test_a_bad_message_becomes_a_dead_letter_and_its_neighbours_do_not_notice(code: str) -> None:
    bad = REFUSED[code]
    desk = Desk([])
    desk.arrive(
        chunk("c", spoken(1.0), sequence=0),
        replace(bad, key=b"c" if bad.key == b"bad" else bad.key),
        chunk("c", spoken(1.0), sequence=1),
        control("c", "end", sequence=2),
    )
    desk.settle()

    (letter,) = desk.dead_letters()
    assert header(letter, "error.code") == code
    assert header(letter, "error.stage") == "codec"
    assert header(letter, "source.offset") == "1"
    assert [f["end_sample"] for f in desk.transcripts()] == [16_000]
    assert desk.told("gap") == []
    assert desk.told("ended")[0]["finals"] == 1
    assert [c.value for c in desk.counts.codes] == [code]
    assert desk.committed.offset == 4


def test_bytes_with_an_event_that_carries_none_are_refused() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(0.5)), chunk("c", b"\0", event="flush"))
    desk.settle()

    assert [c.value for c in desk.counts.codes] == ["invalid_header"]


@pytest.mark.parametrize("headers", [{}, {"event": "audio"}, GOOD])
def test_a_null_value_without_an_event_causes_nothing(headers: dict[str, object]) -> None:
    desk = Desk([])
    desk.arrive(message("c", None, headers))
    desk.settle()

    assert desk.all_records() == []
    assert desk.counts.outcomes == {"tombstone": 1}
    assert desk.committed.offset == 1


def test_a_null_value_with_an_unknown_event_is_refused() -> None:
    desk = Desk([])
    desk.arrive(control("c", "hangup"))
    desk.settle()

    assert header(desk.dead_letters()[0], "error.code") == "invalid_header"
    assert header(desk.dead_letters()[0], "value.null") == "true"


def test_a_language_that_the_model_does_not_speak_is_refused() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0), options='{"language": "fi"}'))
    desk.settle()

    assert header(desk.dead_letters()[0], "error.code") == "option_unsupported"
    assert desk.told("started") == []


def test_a_lenient_producer_is_warned_of_the_language_in_every_final() -> None:
    options = json.dumps({"language": "fi", "lenient": True, "sing": 1})
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0), options=options), control("c", "end"))
    desk.settle()

    assert desk.dead_letters() == []
    assert desk.transcripts()[0]["warnings"] == [
        "option_unsupported:sing",
        "option_unsupported:language",
    ]


def test_a_language_with_a_region_is_the_language() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0), options='{"language": "en-GB"}'), control("c", "end"))
    desk.settle()

    assert desk.transcripts()[0]["warnings"] == []


def test_a_dead_letter_holds_the_commit_until_it_is_acknowledged() -> None:
    desk = Desk([], answering=False)
    desk.arrive(keyless(), message("c", None, {}))
    desk.settle()
    assert desk.committed.offset == 0

    desk.answering = True
    desk.take_over()
    desk.deliver(9)
    desk.settle()

    assert desk.committed.offset == 2
    # The heir does the listed one again.
    assert [header(d, "error.id") for d in desk.dead_letters()] == ["chunks:0:0:-:key_required"] * 2
    assert desk.counts.outcomes["dead_letter"] == 1


def test_a_finished_bad_message_is_not_refused_again() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0)), keyless())
    desk.settle()
    assert desk.committed.offset == 0

    desk.take_over()
    desk.deliver(9)
    desk.settle()

    assert len(desk.dead_letters()) == 1


def test_the_watermark_is_the_oldest_message_that_is_still_needed() -> None:
    desk = Desk([])
    desk.arrive(*[chunk("c", spoken(0.5)) for _ in range(4)], chunk("c", hushed(2.0)))
    desk.commit()
    assert desk.committed.offset == 0

    desk.speech.step()
    desk.commit()
    assert desk.committed.offset == 0  # the final is on its way

    desk.outbox.acknowledge()
    desk.commit()
    # The endpoint is in message 4, and so is the cut from which the next span hears.
    assert desk.committed.offset == 4


def test_events_that_are_not_acknowledged_hold_the_commit() -> None:
    desk = Desk([], answering=False)
    desk.arrive(chunk("c", None, event="start"))
    desk.settle()

    assert desk.committed.offset == 0


def test_offsets_may_have_gaps() -> None:
    log = [
        replace(raw, offset=offset)
        for raw, offset in (
            (chunk("c", spoken(1.0)), 5),
            (control("c", "end"), 17),
        )
    ]
    desk = Desk(log, committed=Committed(3))
    desk.deliver(9)
    desk.settle()

    assert desk.committed.offset == 18
    assert desk.told("started")[0]["origin"] == "0-5"


def test_what_comes_back_after_the_hand_over_changes_nothing() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0)), control("c", "flush"), keyless())
    commit = desk.prepare()
    desk.speech.step()
    partition, outbox = desk.partition, desk.outbox
    partition.drop()
    before = partition.tracker.open_offsets(), len(outbox.sent)

    outbox.acknowledge()
    desk.speech.step()
    desk.acknowledge_commit(commit)

    assert (partition.tracker.open_offsets(), len(outbox.sent)) == before


def test_a_hand_over_leaves_the_engine_and_publishes_nothing() -> None:
    desk = Desk([])
    desk.arrive(chunk("a", spoken(1.0)), chunk("b", spoken(1.0)), control("b", "flush"))
    sent = len(desk.outbox.sent)

    desk.partition.drop()
    desk.speech.step()

    assert desk.speech.open_requests == {}
    assert len(desk.outbox.sent) == sent


def test_a_map_of_any_size_is_taken_over() -> None:
    desk = Desk([])
    desk.arrive(*[chunk(f"call-{i}", spoken(0.3)) for i in range(170)])
    desk.commit()
    assert len(desk.committed.metadata) > 4095

    desk.take_over()
    desk.deliver(170)
    assert len(desk.told("started")) == 170
    desk.arrive(*[control(f"call-{i}", "end") for i in range(170)])
    desk.settle()
    assert desk.committed.offset == 340


def test_a_map_of_another_key_does_not_swallow_a_new_session() -> None:
    desk = Desk([])
    desk.arrive(chunk("a", spoken(1.0)))
    desk.commit()
    desk.take_over()
    desk.deliver(9)
    desk.arrive(chunk("b", spoken(1.0)), control("b", "end"))
    desk.settle()

    assert {b["session_id"] for b in desk.told("started")} == {"a", "b"}
    contents, _ = decode_metadata(desk.committed.metadata, TOPIC_ID, 0, desk.committed.offset)
    assert contents is not None
    assert len(contents.sessions) == 1


def test_without_a_map_everything_above_the_commit_is_heard_again() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0)), control("c", "end"))
    desk.settle()
    finals = desk.finals()

    desk.committed = Committed(0, "")  # the map was foreign and is ignored
    desk.take_over()
    desk.deliver(9)
    desk.settle()

    assert desk.finals() == finals
    assert desk.committed.offset == 2


def test_published_events_are_not_published_again() -> None:
    desk = Desk([])
    desk.arrive(chunk("c", spoken(1.0)))
    desk.settle()

    desk.take_over()
    desk.deliver(9)
    desk.arrive(control("c", "end"))
    desk.settle()

    started = [r for r in desk.all_records() if header(r, "ce_type") == "oasr.session.started.v1"]
    assert len(started) == 1


def test_a_call_waits_for_its_own_key_though_another_has_the_same_hash() -> None:
    desk = Desk([], hash_key=lambda _key: 5)
    desk.arrive(chunk("a", spoken(1.0)), chunk("b", spoken(1.0)), control("a", "flush"))
    desk.settle()  # the first message of `a` is done, that of `b` is open
    assert desk.committed.offset == 1
    desk.take_over()
    desk.arrive(
        chunk("a", spoken(1.0)), control("a", "end"), chunk("b", spoken(1.0)), control("b", "end")
    )
    desk.settle()

    received = {b["session_id"]: b["totals"][0]["received"]["samples"] for b in desk.told("ended")}
    assert received == {"a": 16_000, "b": 16_000}
    assert len(desk.told("started")) == 2


def test_an_entry_whose_first_open_message_is_lost_goes_to_the_next_of_its_key() -> None:
    desk = Desk([])
    desk.arrive(*[chunk("a", spoken(0.5)) for _ in range(3)])
    desk.commit()
    del desk.log[0]  # compacted away
    desk.take_over()
    desk.arrive(control("a", "end"))
    desk.settle()

    (ended,) = desk.told("ended")
    assert len(desk.told("started")) == 1
    assert ended["finals"] == 1
    assert desk.committed.offset == 4
