"""A chunk that is refused, whatever for, leaves the calls around it as they would be without it."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson

from tests.support.calls import Shape, call, chunk, control, interleaved, message, placed, spoken
from tests.support.fuzz_messages import CHUNK_CODES
from tests.support.lane_desk import LaneDesk
from tests.support.partitions import Desk, header
from worker.engine_process import CRASHED
from worker.errors import ErrorCode
from worker.messages import Kind, RawMessage
from worker.ports import Limits

CALLS = 50
SHAPES = (
    Shape(smallest=3_000, largest=6_000),
    Shape(encoding="alaw", channels=2, smallest=5_000, largest=9_000),
    Shape(channels=2, separate=True, smallest=3_000, largest=6_000),
)
PCM = {"encoding": "pcm_s16le", "sample_rate": 8000}
AUDIO = b"\0\0" * 800
# Refused before it belongs to a call.
MESSAGES: dict[ErrorCode, RawMessage] = {
    ErrorCode.KEY_REQUIRED: replace(message("", AUDIO, PCM), key=None),
    ErrorCode.KEY_INVALID: message("x" * 257, AUDIO, PCM),
    ErrorCode.VALUE_TOO_LARGE: message("bad", b"\0" * ((1 << 20) + 1), PCM),
    ErrorCode.HEADER_TOO_LARGE: message("bad", AUDIO, {**PCM, "roles": "r" * 1_025}),
    ErrorCode.INVALID_HEADER: message("bad", AUDIO, {**PCM, "sequence": "one"}),
    ErrorCode.INVALID_ENVELOPE: message("bad", b"[]", {"content-type": "application/json"}),
    ErrorCode.ENCODING_REQUIRED: message("bad", AUDIO, {"sample_rate": 8000}),
    ErrorCode.ENCODING_UNSUPPORTED: message("bad", AUDIO, {**PCM, "encoding": "opus"}),
    ErrorCode.SAMPLE_RATE_REQUIRED: message("bad", AUDIO, {"encoding": "mulaw"}),
    ErrorCode.INVALID_OPTIONS: message("bad", AUDIO, {**PCM, "options": "{"}),
    ErrorCode.OPTION_UNSUPPORTED: message("bad", AUDIO, {**PCM, "options": '{"task": "x"}'}),
}
Log = list[RawMessage]


def logs(*bad: RawMessage, at_once: bool = False) -> tuple[Log, Log]:
    """Fifty calls at once with the bad messages among them, and the same calls without these.

    What is bad lies anywhere, or all at one place when every call has begun.
    """
    rng = random.Random(11)
    lanes = [call(f"good-{n}", SHAPES[n % 3], 1.4, rng) for n in range(CALLS)]
    calls = interleaved(lanes, rng)
    begun = 1 + max(calls.index(lane[0]) for lane in lanes)
    mixed = [(raw, False) for raw in calls]
    for raw in bad:
        place = begun if at_once else rng.randrange(20, len(mixed) - 60)
        mixed.insert(place, (raw, True))
    log = placed([raw for raw, _ in mixed])
    return log, [raw for raw, (_, is_bad) in zip(log, mixed, strict=True) if not is_bad]


def good(said: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is said of the good calls, by the ids of the records."""
    return {
        record_id: texts
        for record_id, texts in said.items()
        if all(orjson.loads(text)["session_id"].startswith("good-") for text in texts)
    }


def heard(log: Log, crashing: str | None = None) -> LaneDesk:
    """A lane that reads a log; whoever decodes the call `crashing` dies of it."""
    desk = LaneDesk(log, 4095)
    while desk.owned.position < len(log):
        desk.deliver(7)
        for segment, _ in list(desk.speech.open_requests.values()):
            if crashing is not None and _key_of(log, segment.info.first_offset) == crashing:
                desk.speech.fail(segment, "", CRASHED)
        desk.speech.step()
        desk.outbox.acknowledge()
        desk.tick()
        desk.broker()
    desk.settle()
    return desk


def _key_of(log: Log, offset: int) -> str:
    (key,) = [raw.key for raw in log if raw.offset == offset]
    return (key or b"").decode()


def codes(desk: LaneDesk) -> list[str]:
    records = desk.records + desk.outbox.on_topic
    return [header(record, "error.code") for record in records if record.kind is Kind.DEAD_LETTER]


def test_the_list_has_every_code_of_a_message_that_is_refused() -> None:
    assert MESSAGES.keys() == CHUNK_CODES


def test_refused_chunks_of_every_code_change_no_call_be_it_of_their_own_or_not() -> None:
    strays = [replace(bad, key=b"good-7") for bad in MESSAGES.values() if bad.key == b"bad"]
    bad = [*MESSAGES.values(), *strays]
    log, without = logs(*bad)

    poisoned, clean = heard(log), heard(without)

    for kind in (Kind.FINAL, Kind.EVENT):
        assert poisoned.said(kind) == clean.said(kind)
    assert len(clean.said(Kind.FINAL)) >= CALLS
    assert len(clean.said(Kind.EVENT)) >= 2 * CALLS
    expected = [
        code.value for code, raw in MESSAGES.items() for _ in range(1 + (raw.key == b"bad"))
    ]
    assert sorted(codes(poisoned)) == sorted(expected)
    assert codes(clean) == []
    assert poisoned.committed is not None
    assert poisoned.committed.offset == log[-1].offset + 1


def test_audio_that_kills_its_process_changes_no_other_call() -> None:
    rng = random.Random(3)
    log, without = logs(*call("bad", Shape(smallest=16_000, largest=16_000), 1.9, rng)[:1])
    log += [replace(control("bad", "abort"), offset=log[-1].offset + 1)]

    poisoned, clean = heard(log, crashing="bad"), heard(without)

    assert codes(poisoned) == ["crashed_worker"]
    for kind in (Kind.FINAL, Kind.EVENT):
        assert good(poisoned.said(kind)) == good(clean.said(kind))
    assert poisoned.committed is not None
    assert poisoned.committed.offset == log[-1].offset + 1


def test_more_sessions_than_may_be_open_change_no_call_that_goes_on() -> None:
    limits = Limits(max_sessions=CALLS + 5)
    burst = [chunk(f"bad-{n}", spoken(0.1)) for n in range(2 * CALLS)]
    log, without = logs(*burst, at_once=True)

    # all of it comes between two ticks, so that nothing ends before the limit is met
    poisoned, clean = Desk(log, limits), Desk(without, limits)
    for desk in (poisoned, clean):
        desk.run()

    refused = [header(record, "error.code") for record in poisoned.dead_letters()]
    assert set(refused) == {"session_limit"}
    assert good(poisoned.finals()) == clean.finals()
    assert good(poisoned.events()) == clean.events()
