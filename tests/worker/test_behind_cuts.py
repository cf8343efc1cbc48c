"""What is read and waits for a commit is bounded, and a commit lets everything go on."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calls import call, control, interleaved, placed
from tests.support.disturbed import SHAPES
from tests.support.lanes import Clock, FakeStates, LaneCounts
from tests.support.owned_lane import OwnedLane
from tests.support.partitions import TOPIC_ID, Outbox, header
from worker.backpressure import Backpressure
from worker.behind_cuts import waiting_s
from worker.commits import CommitResult
from worker.lane_tools import LaneTools
from worker.messages import Batch, Kind, RawMessage

HIGH_S, LOW_S = 3.0, 1.0
IDLE_S = 11.0  # longer than after which a silent call is cut
LONGEST_CHUNK_S = 4.0  # of all shapes, as a message that no session has decoded counts


class Bench:
    """A lane whose broker sends chunks and may not take commits."""

    def __init__(self, log: list[RawMessage]) -> None:
        self.log, self.outbox, self.clock = log, Outbox(), Clock()
        tools = LaneTools(
            lambda: TOPIC_ID, FakeStates(), lambda _s: None, LaneCounts(), self.clock, 1.0, 100_000
        )
        pressure = Backpressure(HIGH_S, LOW_S, 2.0, self.clock)
        self.owned = OwnedLane(tools, log, None, self.outbox, pressure=pressure)
        self.lane, self.reader = self.owned.lane, self.owned.reader
        self.position, self.most_s = 0, 0.0
        self.answer()  # the first commit of an owner, before which it reads nothing

    @property
    def waits_s(self) -> float:
        return waiting_s(self.lane.partitions[0])

    @property
    def is_paused(self) -> bool:
        return 0 in self.reader.paused

    def arrive(self, number: int = 1) -> None:
        """The next messages are in the log; they are read if the partition is."""
        messages = [] if self.is_paused else self.log[self.position : self.position + number]
        self.position += len(messages)
        at_end = frozenset() if self.is_paused else frozenset({0})
        self.reader.batches.append(Batch(messages, at_end))
        self.turn()

    def turn(self, seconds: float = 0.2) -> None:
        """The loop turns, so much later."""
        self.clock.now += seconds
        self.lane.poll(0)
        self.lane.tick(dict, False)
        self.most_s = max(self.most_s, self.waits_s)

    def answer(self, result: CommitResult = CommitResult.DONE) -> None:
        """The broker says what became of the commit on its way, if there is one."""
        self.turn()
        if self.reader.commits:
            self.reader.commits.clear()
            self.lane.commit_answered(0, result)

    def settle(self) -> None:
        """Brokers take commits again; until nothing changes any more."""
        for _ in range(30 + len(self.log) // 20):
            self.arrive(20)
            self.owned.speech.step()
            self.outbox.acknowledge()
            self.clock.now += 1
            self.answer()

    def ended(self) -> list[str]:
        """The sessions that were told to have ended."""
        events = (r for r in self.outbox.on_topic if r.kind is Kind.EVENT)
        return sorted(header(r, "ce_subject") for r in events if b'"event":"ended"' in r.value)


def calls(number: int, seconds: float, rng: random.Random) -> list[RawMessage]:
    """Calls side by side, each with its end."""
    lanes = [call(f"call-{n}", rng.choice(SHAPES), seconds, rng) for n in range(number)]
    return placed(interleaved(lanes, rng), rng)


def idle_cut(log: list[RawMessage]) -> Bench:
    """A call that was silent for so long that a cut waits for its commit."""
    bench = Bench(log)
    bench.arrive(3)
    bench.turn(IDLE_S)
    assert bench.lane.partitions[0].sessions.all()[0].channels[0].pending is not None
    return bench


def test_a_call_that_goes_on_while_no_commit_is_taken_is_not_read_for_ever() -> None:
    bench = idle_cut(calls(1, 20.0, random.Random(1)))
    for _ in range(200):
        bench.arrive()

    assert bench.is_paused
    assert bench.position < len(bench.log)
    assert HIGH_S < bench.most_s <= HIGH_S + LONGEST_CHUNK_S

    bench.answer()
    bench.turn()
    assert not bench.is_paused
    bench.settle()
    assert bench.position == len(bench.log)
    assert bench.ended() == ["call-0"]


def test_messages_without_audio_behind_an_end_count_as_well() -> None:
    rng = random.Random(2)
    log = [*calls(1, 2.0, rng)[:-1]]
    flood = [control("call-0", "keepalive")] * 1200
    bench = Bench(placed([*log, *flood], rng))
    bench.arrive(len(log))
    bench.turn(IDLE_S * 1000)  # beyond the time to live: the session is to end
    for _ in range(len(flood)):
        bench.arrive()

    assert bench.is_paused
    assert len(bench.lane.partitions[0].held) < 1000


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 1 << 32))
def test_whatever_comes_in_which_order_the_wait_is_bounded_and_ends(seed: int) -> None:
    rng = random.Random(seed)
    number = rng.randint(1, 3)
    bench = Bench(calls(number, rng.uniform(2, 6), rng))
    for _ in range(200):
        move = rng.random()
        if move < 0.6:
            bench.arrive(rng.choice([1, 1, 2]))
        elif move < 0.7:
            bench.turn(rng.choice([0.2, 1.0, IDLE_S]))
        elif move < 0.8:
            bench.owned.speech.step(rng.choice([1, 100]))
        elif move < 0.9:
            bench.outbox.acknowledge(rng.choice([1, 100]))
        elif move < 0.93:
            bench.answer(rng.choice([CommitResult.DONE, CommitResult.RETRY]))
        # Two messages may come between looks at what waits.
        assert bench.waits_s <= HIGH_S + 2 * LONGEST_CHUNK_S

    bench.settle()

    assert not bench.is_paused
    assert bench.position == len(bench.log)
    assert len(set(bench.ended())) == number
