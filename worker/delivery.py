"""How records leave, by the mode that is set: through a sink, or in the lanes' transactions."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Producer

from worker.clients import partials_producer_properties, producer_properties
from worker.counters import CommittedLatencies, SinkMetrics, TransactionMetrics
from worker.messages import Kind, OutRecord
from worker.metrics import Metrics
from worker.partials import Partials
from worker.producer import Sink, smaller
from worker.settings import Settings
from worker.transaction_clients import transaction_thread
from worker.transaction_commits import TransactionTools

Outputs = Sink | Partials  # in transactions, only partials go out by themselves


def output_topics(settings: Settings) -> dict[Kind, str]:
    """Where records of each kind go."""
    topics = settings.topics
    return {
        Kind.FINAL: topics.transcripts,
        Kind.PARTIAL: topics.partials,
        Kind.EVENT: topics.events,
        Kind.DEAD_LETTER: topics.dead_letters,
        Kind.STATE: topics.state,
    }


def make_outputs(settings: Settings, metrics: Metrics) -> Outputs:
    """The producers that both lanes share."""
    topics, counters = output_topics(settings), SinkMetrics(metrics)

    def make_partials() -> Producer:
        return Producer(partials_producer_properties(settings))

    if settings.delivery.mode == "exactly-once":
        return Partials(make_partials, topics[Kind.PARTIAL], counters, time.monotonic)
    return Sink(
        lambda: Producer(producer_properties(settings)),
        make_partials,
        topics,
        counters,
        time.monotonic,
    )


class TransactionsOnly:
    """An outbox for none: in exactly-once mode nothing leaves outside of a transaction."""

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        """Raises RuntimeError: a partition has an outbox of its own."""
        del on_ack
        raise RuntimeError(f"a {record.kind.value} record outside of transactions")

    def send_once(
        self, record: OutRecord, on_placed: Callable[[tuple[int, int] | None], None]
    ) -> None:
        """Raises RuntimeError: the transaction writes the records of maps."""
        del on_placed
        raise RuntimeError(f"a {record.kind.value} record outside of transactions")


def outbox_of(outputs: Outputs) -> Sink | TransactionsOnly:
    """Where what no partition sends would go."""
    return outputs if isinstance(outputs, Sink) else TransactionsOnly()


def transaction_tools(
    settings: Settings,
    group: str,
    topic: str,
    outputs: Outputs,
    metrics: Metrics,
    latencies: CommittedLatencies,
) -> TransactionTools | None:
    """What the lane that reads `topic` makes transactions of; None where there are none.

    Each lane has a producer of its own: its records and its group's offsets belong together, and
    what becomes of the other lane's transaction does not hold it up.
    """
    if not isinstance(outputs, Partials):
        return None
    return TransactionTools(
        port=transaction_thread(settings, group, topic, output_topics(settings)),
        send_partial=outputs.send,
        settled=latencies.settled,
        counters=TransactionMetrics(metrics, topic),
        now=time.monotonic,
        interval_s=settings.delivery.transaction_interval_ms / 1000,
        commit_interval_s=settings.commits.interval_ms / 1000,
        smaller=smaller,
    )
