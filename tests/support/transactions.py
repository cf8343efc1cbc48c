"""Transactions without a broker: one that keeps its contract and fails on command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.support.consumers import FakeMessage

STATE_TOPIC = "state"


def retriable(code: int = KafkaError._TIMED_OUT) -> KafkaError:
    return KafkaError(code, retriable=True)


def abortable(code: int = KafkaError._MSG_TIMED_OUT) -> KafkaError:
    return KafkaError(code, txn_requires_abort=True)


def fatal(code: int = KafkaError._FENCED) -> KafkaError:
    return KafkaError(code, fatal=True)


@dataclass
class _Open:
    """What one producer has put into its transaction."""

    records: list[tuple[str, bytes]] = field(default_factory=list)
    positions: dict[int, tuple[int, str]] = field(default_factory=dict)


class FakeBroker:
    """Topics, the group's positions and the transactions of one producer name.

    `happens(step)` says what goes wrong at a step: None, or an error and whether the step was
    done all the same, unknown to the client.
    """

    def __init__(self) -> None:
        self.happens: Callable[[str], tuple[KafkaError, bool] | None] = lambda _step: None
        self.visible: list[tuple[str, bytes]] = []
        self.positions: dict[int, tuple[int, str]] = {}
        self.member: object = "member"  # who may commit positions
        self.epoch = 0
        self.steps: list[str] = []
        self.asked: list[list[int]] = []
        self._open: _Open | None = None

    def producer(self) -> FakeTransactionalProducer:
        return FakeTransactionalProducer(self)

    def committed(self, partitions: Sequence[int]) -> dict[int, tuple[int, str]]:
        """What the group has committed."""
        self.asked.append(list(partitions))
        self.step("committed")
        return {n: self.positions[n] for n in partitions if n in self.positions}

    def step(self, name: str, do: Callable[[], None] = lambda: None) -> None:
        """Do something, or what happens instead of it."""
        self.steps.append(name)
        trouble = self.happens(name)
        if trouble is None:
            do()
            return
        error, done = trouble
        if done:
            do()
        raise KafkaException(error)

    def time_out(self) -> None:
        """The transaction that is open has taken too long: it is aborted, its owner fenced."""
        self.epoch += 1
        self._open = None

    # -- what producers ask -------------------------------------------------------------------

    def init(self) -> int:
        self.epoch += 1
        self._open = None
        return self.epoch

    def begin(self) -> None:
        if self._open is None:
            self._open = _Open()

    def add(self, topic: str, value: bytes) -> int:
        if self._open is None:  # it took too long; its owner will hear of it
            return 0
        self._open.records.append((topic, value))
        return len(self.visible) + len(self._open.records) - 1

    def add_positions(self, positions: Sequence[TopicPartition]) -> None:
        assert self._open is not None
        self._open.positions = {p.partition: (p.offset, p.metadata) for p in positions}

    def end(self, commit: bool) -> None:
        if self._open is not None and commit:
            self.visible += self._open.records
            self.positions.update(self._open.positions)
        self._open = None


class FakeTransactionalProducer:
    """A producer of that broker; once it is fenced or dead every call says so."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._epoch: int | None = None
        self._dead = False
        self._reports: list[Callable[[], None]] = []
        self.room = 1000

    def init_transactions(self, timeout: float) -> None:
        assert timeout > 0

        def init() -> None:
            self._epoch = self._broker.init()

        self._step("init", init)

    def begin_transaction(self) -> None:
        self._step("begin", self._broker.begin)

    def produce(self, topic: str, **arguments: Any) -> None:
        if len(self._reports) >= self.room:
            raise BufferError
        report = arguments["on_delivery"]

        def add() -> None:
            offset = self._broker.add(topic, arguments["value"])
            self._reports.append(lambda: report(None, FakeMessage(0, offset)))

        self._step("produce", add)

    def poll(self, timeout: float) -> int:
        del timeout
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return len(reports)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: object, timeout: float
    ) -> None:
        assert timeout > 0

        def add() -> None:
            if group_metadata != self._broker.member:
                raise KafkaException(abortable(KafkaError.ILLEGAL_GENERATION))
            self._broker.add_positions(positions)

        self._step("positions", add)

    def commit_transaction(self, timeout: float) -> None:
        assert timeout > 0
        self.poll(0)
        self._step("commit", lambda: self._broker.end(commit=True))

    def abort_transaction(self, timeout: float) -> None:
        assert timeout > 0
        self._reports.clear()
        self._step("abort", lambda: self._broker.end(commit=False))

    def _step(self, name: str, do: Callable[[], None]) -> None:
        fenced = self._epoch is not None and self._epoch != self._broker.epoch
        if fenced or self._dead:
            raise KafkaException(fatal())
        try:
            self._broker.step(name, do)
        except KafkaException as error:
            self._dead = error.args[0].fatal()
            raise
