"""The transactional Kafka client as one that does not give up while brokers may still answer.

Its calls block, and are made again until they are done, were refused, or the client has died.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from worker.messages import OutRecord

logger = logging.getLogger(__name__)

CALL_S = 1.0  # of one call to the client
PAUSE_S = 0.1  # before a call is made again

Report = Callable[[KafkaError | None, Message | None], None]
Pause = Callable[[float], bool]  # waits so long; whether there is no point in going on


class TransactionalProducer(Protocol):
    """The Kafka client, as far as transactions go; its calls raise KafkaException."""

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, topic: str, **arguments: Any) -> None: ...

    def poll(self, timeout: float) -> int: ...

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: object, timeout: float
    ) -> None: ...

    def commit_transaction(self, timeout: float) -> None: ...

    def abort_transaction(self, timeout: float) -> None: ...


class Left(Exception):
    """Nobody waits for the outcome any more."""


class Problem(Exception):
    """What became of a call that is not made again."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class Refused(Problem):
    """The transaction has to be aborted; the client can go on."""


class Died(Problem):
    """The client cannot go on."""


class TransactionClient:
    """One producer; all calls raise Refused, Died, or Left once `pause` says so."""

    def __init__(self, producer: TransactionalProducer, pause: Pause) -> None:
        """Ends what a former producer of the same name left open."""
        self._producer = producer
        self._pause = pause
        self._call(lambda: producer.init_transactions(CALL_S))

    def serve(self, timeout_s: float = 0) -> None:
        """Run the client's callbacks, waiting at most so long for one."""
        self._producer.poll(timeout_s)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def produce(self, topic: str, record: OutRecord, report: Report) -> None:
        """Put a record into the transaction; `report` hears of its delivery, or why not."""
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    on_delivery=report,
                )
            except BufferError:  # until it has delivered some
                self._producer.poll(PAUSE_S)
            except KafkaException as error:
                problem = error.args[0]
                report(problem, None)
                raise (Died if problem.fatal() else Refused)(problem) from error
            else:
                return

    def send_positions(self, places: Sequence[TopicPartition], member: object) -> None:
        """Make the group's positions part of the transaction."""
        self._call(lambda: self._producer.send_offsets_to_transaction(list(places), member, CALL_S))

    def commit(self) -> None:
        self._call(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        """Raises Died also where the client refuses: it could neither commit nor abort."""
        try:
            self._call(lambda: self._producer.abort_transaction(CALL_S))
        except Refused as problem:
            raise Died(problem.error) from problem

    def wait(self) -> None:
        """Before something that may succeed later."""
        if self._pause(PAUSE_S):
            raise Left

    def _call(self, step: Callable[[], None]) -> None:
        while True:
            try:
                step()
                return
            except KafkaException as error:
                problem = error.args[0]
                if problem.fatal() or not problem.retriable():
                    refused = problem.txn_requires_abort() and not problem.fatal()
                    raise (Refused if refused else Died)(problem) from error
                logger.warning("a transaction waits: %s", problem.str())
            self.wait()
