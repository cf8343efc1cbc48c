"""The loop waits for no broker: transactions run in a thread, one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError

from tests.support.lanes import Clock
from tests.support.transactions import FakeBroker, fatal, retriable
from worker.messages import Kind, OutRecord
from worker.metadata import Place
from worker.transaction_client import Pause
from worker.transaction_thread import TransactionThread
from worker.transactions import Answer, Outcome, Position, Transaction
from worker.transactor import Transactor, TransactorTools

SOON_S = 10.0


def transaction(number: int) -> Transaction:
    record = OutRecord(Kind.FINAL, b"k", b"%d" % number, ())
    return Transaction((record,), (Position(Place("id", 0, number), "map", 0, True),), "member")


class Bench:
    """A thread before a broker that can be held up."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.went_on = threading.Event()
        self.went_on.set()
        self.threads: set[str] = set()
        self.port: TransactionThread | None = None

    def start(self) -> TransactionThread:
        self.port = TransactionThread(self.make, "transactions of chunks")
        return self.port

    def make(self, pause: Pause) -> Transactor:
        self.threads.add(threading.current_thread().name)
        return Transactor(
            TransactorTools(
                make_producer=self.broker.producer,
                committed=self.broker.committed,
                group="group",
                topic="chunks",
                topics={kind: kind.value for kind in Kind},
                now=Clock(),
                pause=lambda _seconds: pause(0.001),
            )
        )

    def hold(self, step: str) -> Callable[[], None]:
        """The broker does not answer this step; returns what lets it."""
        self.went_on.clear()

        def happens(name: str) -> None:
            if name == step:
                self.went_on.wait(SOON_S)

        self.broker.happens = happens
        return self.went_on.set


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    yield found
    found.went_on.set()
    if found.port is not None:
        found.port.close()
        assert found.port.join(SOON_S)


def test_transactions_are_answered_in_a_thread_of_their_own(bench: Bench) -> None:
    port = bench.start()
    for number in (1, 2):
        port.submit(transaction(number))
        assert port.answer(SOON_S) == Answer(Outcome.COMMITTED)

    assert [value for _, value in bench.broker.visible] == [b"1", b"2"]
    assert bench.threads == {"transactions of chunks"}


def test_nobody_waits_for_a_broker_that_does_not_answer(bench: Bench) -> None:
    let = bench.hold("commit")
    port = bench.start()
    port.submit(transaction(1))

    assert port.answer(0) is None
    assert port.answer(0.01) is None
    let()
    assert port.answer(SOON_S) == Answer(Outcome.COMMITTED)


def test_a_producer_is_set_up_before_the_first_transaction(bench: Bench) -> None:
    set_up = threading.Event()

    def happens(name: str) -> None:
        if name == "init":
            set_up.set()

    bench.broker.happens = happens
    bench.start()

    assert set_up.wait(SOON_S)


def test_a_producer_that_cannot_be_set_up_is_told(bench: Bench) -> None:
    error = fatal(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bench.broker.happens = lambda _step: (error, False)
    answer = bench.start().answer(SOON_S)

    assert answer is not None
    assert answer.outcome is Outcome.FATAL


def test_a_failure_of_the_thread_itself_is_told(bench: Bench) -> None:
    def happens(name: str) -> None:
        if name == "begin":
            raise ZeroDivisionError("a bug")

    bench.broker.happens = happens
    port = bench.start()
    port.submit(transaction(1))

    assert port.answer(SOON_S) == Answer(Outcome.FATAL, "ZeroDivisionError: a bug")


def test_a_thread_that_waits_for_brokers_leaves_when_nobody_needs_it(bench: Bench) -> None:
    tried = threading.Event()

    def happens(_name: str) -> tuple[KafkaError, bool]:
        tried.set()
        return retriable(), False

    bench.broker.happens = happens
    port = bench.start()
    assert tried.wait(SOON_S)
    port.close()

    assert port.join(SOON_S)
    assert port.answer(0) is None
