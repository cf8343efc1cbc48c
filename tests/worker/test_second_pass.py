"""Calls that asked for it are heard again after their end, or their ended event says why not."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.decoding.options import DecodingOptions
from oasr.engine.request import RequestOutput
from tests.support.calls import Shape, call, placed
from tests.support.disturbed import random_log
from tests.support.partitions import Desk
from worker.engine_process import CRASHED
from worker.errors import ErrorCode
from worker.messages import RawMessage
from worker.ports import Limits
from worker.second_pass import SecondPasses

IMPOSSIBLE = ErrorCode.SECOND_PASS_IMPOSSIBLE.value
SHAPE = Shape(rate=8_000, encoding="pcm_s16le", channels=2)


class Again:
    """The file model of one owner: what it hears is a digest of exactly the audio."""

    def __init__(self, most_bytes: int, most_session_s: int) -> None:
        self.waiting: dict[str, tuple[Any, DecodingOptions, Callable[[RequestOutput], None]]] = {}
        self.dropped: list[str] = []
        self._count = 0
        self.passes = SecondPasses(
            "whisper", "files", lambda _owner: self, lambda _id: self, most_bytes, most_session_s
        )

    def transcribe(
        self,
        audio: Any,
        priority: int,
        decoding: DecodingOptions,
        receiver: Callable[[RequestOutput], None],
        tenant: str = "",
    ) -> str:
        del priority, tenant
        self._count += 1
        self.waiting[str(self._count)] = (audio, decoding, receiver)
        return str(self._count)

    def drop(self, request_id: str) -> None:
        del self.waiting[request_id]
        self.dropped.append(request_id)

    def step(self, most: int = 1_000_000, reason: Any = "stop", stage: str | None = None) -> None:
        for request_id in list(self.waiting)[:most]:
            audio, _, receiver = self.waiting.pop(request_id)
            text = hashlib.sha256(audio.tobytes()).hexdigest()[:12] if reason == "stop" else ""
            receiver(
                RequestOutput(
                    request_id, text, finished=True, finish_reason=reason, error_stage=stage
                )
            )


class CallDesk(Desk):
    """Owners with a file model; each has one of its own."""

    again: Again

    def __init__(
        self, log: list[RawMessage], most_bytes: int = 1 << 30, most_s: int = 7200, **more: Any
    ) -> None:
        def new_owner() -> SecondPasses:
            self.again = Again(most_bytes, most_s)
            return self.again.passes

        super().__init__(log, second_passes=new_owner, **more)

    def run(self) -> None:
        super().run()
        self.settle_all()

    def settle_all(self) -> None:
        for _ in range(4):
            self.settle()
            self.again.step()
        self.settle()

    def by_pass(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Finals of the calls, and of second passes."""
        finals = self.finals()
        again = {name: said for name, said in finals.items() if name.endswith(":final:whisper")}
        return {name: said for name, said in finals.items() if name not in again}, again

    def ended(self) -> list[dict[str, Any]]:
        return self.told("ended")


def asking(log: list[RawMessage], *keys: bytes, but_the_last: bool = False) -> list[RawMessage]:
    """The messages, those of the keys (all, if none is given) with the option."""
    option = ("options", b'{"second_pass": true}')
    found = []
    for raw in log:
        asks = raw.value is not None and (not keys or raw.key in keys)
        if but_the_last and raw is log[-1]:
            asks = False
        found.append(replace(raw, headers=(*raw.headers, option)) if asks else raw)
    return found


def one_call(seconds: float = 9.0, **more: Any) -> list[RawMessage]:
    return asking(placed(call("c", SHAPE, seconds, random.Random(5))), **more)


def test_every_final_is_told_again_under_its_segment_before_the_call_has_ended() -> None:
    desk = CallDesk(one_call())
    Desk.run(desk)

    first, again = desk.by_pass()
    assert len(first) > 2
    assert again == {}
    assert desk.ended() == []  # and the message that ended it is open
    assert desk.committed.offset == len(desk.log) - 1

    desk.settle_all()
    first, again = desk.by_pass()
    (ended,) = desk.ended()

    assert set(again) == {f"{name}:whisper" for name in first}
    for name, (said,) in again.items():
        body, before = orjson.loads(said), orjson.loads(*first[name.removesuffix(":whisper")])
        assert body["pass"] == "whisper"
        assert "pass" not in before
        same = ("session_id", "segment_id", "start_sample", "end_sample", "channel", "end_reason")
        assert {k: body[k] for k in same} == {k: before[k] for k in same}
        assert body["is_final"]
    assert (ended["finals"], ended["second_finals"]) == (len(first), len(again))
    assert ended["warnings"] == []
    assert desk.committed.offset == len(desk.log)
    assert desk.again.passes.kept_bytes == 0


def test_it_hears_what_was_heard_the_first_time_and_decodes_as_the_file_model_does() -> None:
    log = one_call()
    desk = CallDesk(log)
    Desk.run(desk)
    audio = {samples.tobytes(): decoding for samples, decoding, _ in desk.again.waiting.values()}
    plain = Desk([replace(raw, headers=raw.headers[:-1]) for raw in log])
    plain.run()

    lengths = sorted(len(samples) // 4 for samples in audio)
    expected = sorted(
        2 * (body["end_sample"] - body["start_sample"])
        for (text,) in plain.finals().values()
        for body in [orjson.loads(text)]
    )
    assert lengths == expected
    assert set(audio.values()) == {DecodingOptions()}


def test_a_call_that_did_not_ask_is_not_kept_and_ends_as_ever() -> None:
    log = placed(call("c", SHAPE, 9.0, random.Random(5)))
    desk, plain = CallDesk(log), Desk(log)
    desk.run()
    plain.run()

    assert desk.finals() == plain.finals()
    assert desk.events() == plain.events()


@pytest.mark.parametrize("limits", [{"most_bytes": 60_000}, {"most_s": 3}])
def test_more_audio_than_may_be_kept_is_let_go_and_told(limits: dict[str, int]) -> None:
    desk = CallDesk(one_call(), **limits)
    desk.run()
    first, again = desk.by_pass()
    (ended,) = desk.ended()

    assert first
    assert again == {}
    assert ended["warnings"] == [IMPOSSIBLE]
    assert "second_finals" not in ended
    assert desk.again.passes.kept_bytes == 0
    assert desk.committed.offset == len(desk.log)


def test_one_call_too_many_costs_that_call_its_second_pass_and_no_other() -> None:
    size = 8_000 * 2 * 2 * 9
    messages = [*call("a", SHAPE, 9.0, random.Random(1)), *call("b", SHAPE, 9.0, random.Random(2))]
    desk = CallDesk(asking(placed(messages)), most_bytes=size)
    Desk.run(desk)
    assert desk.again.passes.kept_bytes <= size
    desk.settle_all()

    outcomes = {ended["session_id"]: ended["warnings"] for ended in desk.ended()}
    assert IMPOSSIBLE in [code for codes in outcomes.values() for code in codes]
    assert desk.again.passes.kept_bytes == 0


@pytest.mark.parametrize("restates", [True, False])
def test_an_heir_of_finished_segments_says_that_the_pass_is_not_possible(restates: bool) -> None:
    desk = CallDesk(one_call(but_the_last=not restates))
    desk.deliver(len(desk.log) - 1)
    desk.settle()
    finished = len(desk.by_pass()[0])
    assert finished
    desk.take_over()
    desk.position = desk.committed.offset
    desk.run()

    (ended,) = desk.ended()
    assert ended["warnings"] == [IMPOSSIBLE]
    assert desk.by_pass()[1] == {}
    assert desk.committed.offset == len(desk.log)


def test_an_heir_that_comes_in_the_middle_of_the_pass_says_so_once() -> None:
    desk = CallDesk(one_call())
    Desk.run(desk)
    desk.again.step(1)
    desk.settle()
    told = desk.by_pass()[1]
    assert len(told) == 1
    desk.take_over()
    desk.run()

    (ended,) = desk.ended()
    assert ended["warnings"] == [IMPOSSIBLE]
    assert desk.by_pass()[1] == told


def test_an_heir_that_hears_everything_again_makes_the_pass() -> None:
    desk = CallDesk(one_call())
    desk.deliver(len(desk.log))
    desk.take_over()
    desk.run()
    undisturbed = CallDesk(desk.log)
    undisturbed.run()

    assert desk.finals() == undisturbed.finals()
    assert desk.events() == undisturbed.events()


def test_an_aborted_call_is_not_heard_again() -> None:
    log = one_call()
    abort = replace(
        log[-1], value=None, headers=(("event", b"abort"), ("options", b'{"second_pass": true}'))
    )
    desk = CallDesk([*log[:-1], abort])
    desk.run()

    (ended,) = desk.ended()
    assert (ended["reason"], ended["warnings"]) == ("abort", [])
    assert desk.by_pass()[1] == {}
    assert desk.again.passes.kept_bytes == 0


def test_a_call_that_just_stops_is_heard_again_after_its_time() -> None:
    desk = CallDesk(one_call()[:-1], limits=Limits(idle_finalize_s=1.0, session_ttl_s=5.0))
    desk.run()
    for _ in range(8):
        desk.wait(1.5)
        desk.settle_all()

    (ended,) = desk.ended()
    assert ended["reason"] == "ttl"
    assert ended["second_finals"] == len(desk.by_pass()[1]) > 0


@pytest.mark.parametrize(
    ("stage", "code"), [("forward", "engine_failed"), (CRASHED, "crashed_worker")]
)
def test_what_cannot_be_heard_again_is_told_with_a_warning(stage: str, code: str) -> None:
    desk = CallDesk(one_call())
    Desk.run(desk)
    desk.again.step(1, "error", stage)
    desk.settle_all()

    bodies = [orjson.loads(text) for (text,) in desk.by_pass()[1].values()]
    assert [body["warnings"] for body in bodies if body["warnings"]] == [[code]]
    assert desk.ended()[0]["second_finals"] == len(bodies)


def test_a_hand_over_leaves_the_model_and_frees_the_audio() -> None:
    desk = CallDesk(one_call())
    Desk.run(desk)
    waiting = list(desk.again.waiting)
    assert waiting
    desk.partition.drop()

    assert desk.again.dropped == waiting
    assert desk.again.passes.kept_bytes == 0


def one_move(desk: CallDesk, rng: random.Random) -> None:
    move = rng.random()
    if move < 0.5:
        desk.deliver(rng.choice([1, 1, 2, 5, 20]))
    elif move < 0.65:
        rng.shuffle(desk.speech.finished)
        desk.speech.step(rng.choice([1, 2, 100]))
    elif move < 0.75:
        desk.again.step(rng.choice([1, 100]))
    elif move < 0.87:
        rng.shuffle(desk.outbox.waiting)
        desk.outbox.acknowledge(rng.choice([1, 2, 100]))
    elif move < 0.97:
        desk.commit()
    else:
        desk.take_over()


@pytest.mark.parametrize("cuts_at_once", [False, True])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_owners_that_die_at_any_moment_make_the_pass_or_say_that_it_is_not_possible(
    cuts_at_once: bool, seed: int
) -> None:
    rng = random.Random(seed)
    log = random_log(rng)
    keys = sorted({raw.key for raw in log if raw.key})
    log = asking(log, *rng.sample(keys, max(1, len(keys) // 2)))
    undisturbed = CallDesk(log, cuts_at_once=cuts_at_once)
    undisturbed.run()

    desk = CallDesk(log, cuts_at_once=cuts_at_once)
    for _ in range(300):
        one_move(desk, rng)
    while desk.position < len(log):
        desk.deliver(3)
        one_move(desk, rng)
    desk.deliver(len(log))
    desk.settle_all()

    first, again = desk.by_pass()
    expected, expected_again = undisturbed.by_pass()
    assert first == expected
    assert all(said == expected_again[name] for name, said in again.items())
    events, expected_events = desk.events(), undisturbed.events()
    assert events.keys() == expected_events.keys()
    for name, told in events.items():
        assert_same_but_for_the_pass(told, expected_events[name], again)
    assert desk.committed.offset == undisturbed.committed.offset


def assert_same_but_for_the_pass(
    told: set[str], expected: set[str], again: dict[str, set[str]]
) -> None:
    (wanted,) = [orjson.loads(text) for text in expected]
    second_finals = wanted.pop("second_finals", None)
    for body in map(orjson.loads, told):
        if "second_finals" in body:
            place = f"{body['session_id']}:{body['origin']}:"
            found = sum(name.startswith(place) for name in again)
            assert body.pop("second_finals") == second_finals == found
        elif second_finals is not None:
            assert IMPOSSIBLE in body["warnings"]
            body["warnings"].remove(IMPOSSIBLE)
        assert body == wanted
