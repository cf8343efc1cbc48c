"""Every transaction has a certain outcome, whatever step of it goes wrong and however."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lanes import Clock
from tests.support.transactions import STATE_TOPIC, FakeBroker, abortable, fatal, retriable
from worker.messages import Kind, OutRecord
from worker.metadata import MAX_CHARS, Place
from worker.state_reference import decode_reference
from worker.transaction_client import Left
from worker.transactions import Answer, Outcome, Position, Transaction
from worker.transactor import EDGES, MORTAL_S, TransactionState, Transactor, TransactorTools

STEPS = ("begin", "produce", "positions", "commit")


class Bench:
    """A transactor before a broker that fails when the test says so."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self.broker, self.clock = FakeBroker(), Clock()
        self.leaving = False
        self.pauses = 0
        self.transactor = Transactor(
            TransactorTools(
                make_producer=self.broker.producer,
                committed=self.broker.committed,
                group="group",
                topic="chunks",
                topics={kind: kind.value for kind in Kind},
                now=self.clock,
                pause=self.pause,
                max_chars=max_chars,
            )
        )

    def pause(self, seconds: float) -> bool:
        assert seconds > 0
        self.pauses += 1
        return self.leaving

    def fail(self, step: str, *errors: tuple[KafkaError, bool]) -> None:
        """The next calls of this step fail, one with each error."""
        left = list(errors)

        def happens(name: str) -> tuple[KafkaError, bool] | None:
            return left.pop(0) if name == step and left else None

        self.broker.happens = happens

    def run(self, number: int = 1, **position: object) -> Answer:
        return self.transactor.run(transaction(number, **position))


def transaction(number: int, metadata: str = "map", moved: bool = True) -> Transaction:
    """A final and an event with the position that counts them."""
    records = (
        OutRecord(Kind.FINAL, b"k", b"final %d" % number, ()),
        OutRecord(Kind.EVENT, b"k", b"event %d" % number, ()),
    )
    place = Place("topic-id", 3, number)
    return Transaction(records, (Position(place, metadata, 1, moved),), "member")


def told(*numbers: int) -> list[tuple[str, bytes]]:
    """What is visible of these transactions."""
    return [
        (kind, b"%s %d" % (kind.encode(), number))
        for number in numbers
        for kind in ("final", "event")
    ]


def test_records_and_positions_become_visible_together() -> None:
    bench = Bench()

    assert bench.run(7) == Answer(Outcome.COMMITTED)

    assert bench.broker.visible == told(7)
    assert bench.broker.positions == {3: (7, "map")}
    assert bench.broker.steps == ["init", "begin", "produce", "produce", "positions", "commit"]


def test_the_producer_is_set_up_once() -> None:
    bench = Bench()
    bench.run(1)
    bench.run(2)

    assert bench.broker.steps.count("init") == 1
    assert bench.broker.visible == told(1, 2)


@pytest.mark.parametrize("step", ["init", *STEPS[:1], *STEPS[2:], "abort"])
@pytest.mark.parametrize("done", [False, True])
def test_a_step_is_repeated_while_brokers_may_still_do_it(step: str, done: bool) -> None:
    bench = Bench()
    bench.fail(step, (retriable(), done), (retriable(), False))

    assert bench.run().outcome is Outcome.COMMITTED
    assert bench.pauses == (0 if step == "abort" else 2)
    assert bench.broker.visible == told(1)


@pytest.mark.parametrize("step", STEPS)
def test_a_transaction_that_is_refused_leaves_nothing_and_the_next_goes_through(step: str) -> None:
    bench = Bench()
    bench.fail(step, (abortable(), False))

    answer = bench.run(1)

    assert answer.outcome is Outcome.ABORTED
    assert bench.broker.steps[-1] == ("committed" if step == "commit" else "abort")
    assert bench.broker.visible == []
    assert bench.run(2).outcome is Outcome.COMMITTED
    assert bench.broker.visible == told(2)
    assert bench.broker.steps.count("init") == 1


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.ILLEGAL_GENERATION, Outcome.REFUSED),
        (KafkaError.STALE_MEMBER_EPOCH, Outcome.REFUSED),
        (KafkaError.UNKNOWN_MEMBER_ID, Outcome.EVICTED),
        (KafkaError.FENCED_MEMBER_EPOCH, Outcome.EVICTED),
        (KafkaError.FENCED_INSTANCE_ID, Outcome.FATAL),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, Outcome.ABORTED),
    ],
)
def test_what_the_group_says_to_positions_decides_what_comes_next(
    code: int, outcome: Outcome
) -> None:
    bench = Bench()
    bench.fail("positions", (abortable(code), False))

    assert bench.run().outcome is outcome
    assert bench.broker.visible == []


@pytest.mark.parametrize("step", STEPS)
def test_a_producer_that_dies_is_replaced_and_its_transaction_is_over(step: str) -> None:
    bench = Bench()
    bench.fail(step, (fatal(), False))

    assert bench.run(1).outcome is Outcome.ABORTED
    assert bench.broker.steps[-1] == ("committed" if step == "commit" else "init")
    assert bench.run(2).outcome is Outcome.COMMITTED
    assert bench.broker.visible == told(2)


def test_a_commit_that_came_through_is_known_though_its_producer_died() -> None:
    bench = Bench()
    bench.fail("commit", (fatal(), True))

    assert bench.run().outcome is Outcome.COMMITTED
    assert bench.broker.visible == told(1)
    assert bench.broker.asked == [[3]]


def test_what_is_committed_is_asked_until_there_is_an_answer() -> None:
    bench = Bench()
    failures = {"commit": [(fatal(), True)], "committed": [(retriable(), False)] * 3}

    def happens(name: str) -> tuple[KafkaError, bool] | None:
        return failures[name].pop(0) if failures.get(name) else None

    bench.broker.happens = happens

    assert bench.run().outcome is Outcome.COMMITTED
    assert len(bench.broker.asked) == 4


def test_a_position_that_did_not_move_proves_nothing() -> None:
    bench = Bench()
    bench.run(1)
    bench.fail("commit", (fatal(), False))

    assert bench.run(1, moved=False).outcome is Outcome.ABORTED


def test_a_position_that_an_heir_has_moved_since_proves_nothing_against_a_commit() -> None:
    bench = Bench()
    sent = transaction(1)
    place = Place("topic-id", 4, 9)
    both = Transaction(sent.records, (*sent.positions, Position(place, "other", 1, True)), "member")
    bench.fail("commit", (fatal(), True))
    committed = bench.broker.committed

    def after_the_heir(partitions: list[int]) -> dict[int, tuple[int, str]]:
        bench.broker.positions[3] = (8, "heir's")
        return committed(partitions)

    object.__setattr__(bench.transactor._tools, "committed", after_the_heir)

    assert bench.transactor.run(both).outcome is Outcome.COMMITTED


def test_a_transaction_that_took_too_long_was_aborted_and_its_owner_starts_anew() -> None:
    bench = Bench()
    bench.run(1)

    def happens(name: str) -> None:
        if name == "produce":  # between this record and the next call
            bench.broker.happens = lambda _step: None
            bench.broker.time_out()

    bench.broker.happens = happens
    bench.broker.begin()

    answer = bench.run(2)

    assert answer.outcome is Outcome.ABORTED
    assert bench.broker.visible == told(1)
    assert bench.run(2).outcome is Outcome.COMMITTED
    assert bench.broker.visible == told(1, 2)


def test_a_producer_that_dies_again_soon_with_nothing_committed_ends_the_worker() -> None:
    bench = Bench()
    bench.fail("begin", (fatal(), False), (fatal(), False))
    bench.run()
    bench.clock.now += MORTAL_S - 1

    answer = bench.run()

    assert answer.outcome is Outcome.FATAL
    assert "fenced" in answer.reason


@pytest.mark.parametrize("between", ["a minute", "a commit"])
def test_a_producer_that_lived_before_it_died_again_is_replaced_again(between: str) -> None:
    bench = Bench()
    bench.fail("begin", (fatal(), False))
    assert bench.run(1).outcome is Outcome.ABORTED
    if between == "a commit":
        assert bench.run(1).outcome is Outcome.COMMITTED
    else:
        bench.clock.now += MORTAL_S
    bench.fail("begin", (fatal(), False))

    assert bench.run(2).outcome is Outcome.ABORTED


def test_a_producer_that_cannot_be_set_up_ends_the_worker() -> None:
    bench = Bench()
    bench.fail("init", (fatal(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), False))

    assert bench.run().outcome is Outcome.FATAL


def test_a_producer_that_can_neither_commit_nor_abort_is_replaced() -> None:
    bench = Bench()
    failures = {"commit": [(abortable(), False)], "abort": [(abortable(), False)]}
    bench.broker.happens = lambda name: failures[name].pop(0) if failures.get(name) else None

    assert bench.run().outcome is Outcome.ABORTED
    assert bench.broker.steps[-2:] == ["init", "committed"]


def test_a_record_that_is_too_large_is_named() -> None:
    bench = Bench()
    bench.fail("produce", (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), False))

    reason = "a record to final: Broker: Message size too large"
    assert bench.run() == Answer(Outcome.ABORTED, reason, frozenset({0}))


def test_an_aborted_transaction_names_the_topic_that_refused_a_record() -> None:
    bench = Bench()
    bench.fail("produce", (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), False))

    answer = bench.run(1)
    assert answer.outcome is Outcome.ABORTED
    assert answer.reason == "a record to final: Broker: Topic authorization failed"
    assert answer.too_large == frozenset()


def test_records_wait_for_room_in_the_client() -> None:
    bench = Bench()
    make = bench.broker.producer

    def small() -> object:
        producer = make()
        producer.room = 1
        return producer

    object.__setattr__(bench.transactor._tools, "make_producer", small)

    assert bench.run().outcome is Outcome.COMMITTED
    assert bench.broker.visible == told(1)


def test_a_map_that_does_not_fit_lies_in_a_record_of_the_same_transaction() -> None:
    bench = Bench(max_chars=10)
    metadata = "m" * 11

    assert bench.run(metadata=metadata).outcome is Outcome.COMMITTED

    offset, named = bench.broker.positions[3]
    decoded = decode_reference(named, Place("topic-id", 3, offset))
    assert decoded is not None
    reference, starts = decoded
    assert starts == 1
    assert bench.broker.visible[reference.offset] == (STATE_TOPIC, metadata.encode())
    assert reference.names(metadata.encode())


def test_a_commit_of_a_reference_is_recognised_as_well() -> None:
    bench = Bench(max_chars=10)
    bench.fail("commit", (fatal(), True))

    assert bench.run(metadata="m" * 11).outcome is Outcome.COMMITTED


def test_nobody_waits_for_brokers_at_the_end() -> None:
    bench = Bench()
    bench.leaving = True
    bench.fail("commit", *[(retriable(), False)] * 9)

    with pytest.raises(Left):
        bench.run()


def test_an_edge_that_is_not_in_the_table_is_a_bug() -> None:
    bench = Bench()

    with pytest.raises(RuntimeError, match="transaction"):
        bench.transactor.move_to(TransactionState.ENDING)
    assert set(EDGES) == set(TransactionState)


TROUBLES = (retriable(), abortable(), abortable(KafkaError.ILLEGAL_GENERATION), fatal())


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 32), st.sampled_from([0.05, 0.2, 0.5]))
def test_what_is_sent_until_it_is_committed_is_there_once_and_in_order(
    seed: int, trouble: float
) -> None:
    rng = random.Random(seed)
    bench = Bench()

    def happens(name: str) -> tuple[KafkaError, bool] | None:
        if rng.random() >= trouble:
            return None
        if name in ("init", "committed"):
            return retriable(), rng.random() < 0.5
        if name == "begin" and rng.random() < 0.2:
            bench.broker.time_out()
        error = rng.choice(TROUBLES)
        # Only of what it may yet do, or did before the client died, can the client know nothing.
        unknown = error.retriable() or error.fatal()
        return error, unknown and name != "produce" and rng.random() < 0.5

    bench.broker.happens = happens
    for number in range(1, 9):
        outcome = None
        while outcome is not Outcome.COMMITTED:
            bench.clock.now += MORTAL_S
            outcome = bench.run(number).outcome
            assert outcome is not Outcome.FATAL
        assert bench.broker.positions == {3: (number, "map")}

    assert bench.broker.visible == told(*range(1, 9))
