"""Looks again and again at what a group has committed and what it had published by then."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.chaos_oracle import Sighting
from tests.support.kafka import consumer
from tests.support.kafka_clients import as_raw
from tests.support.worker_calls import record_id
from worker.messages import RawMessage

TIMEOUT_S = 10.0
PAUSE_S = 0.2
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


class Tail:
    """Everything on one topic from its start on, as a `read_committed` reader gets it."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.records: list[RawMessage] = []
        self.places = [TopicPartition(topic, n, 0) for n in range(partitions)]
        self._at = dict.fromkeys(range(partitions), 0)
        self._servers = bootstrap_servers
        self._connect()

    def _connect(self) -> None:
        # A transaction that is open hides what comes after it; the end of the log does not.
        self._ends = consumer(
            self._servers, "ends", **QUIET, **{"isolation.level": "read_uncommitted"}
        )
        self._reader: Consumer = consumer(
            self._servers, "tail", **QUIET, **{"enable.partition.eof": True}
        )
        self._reader.assign(
            [TopicPartition(place.topic, n, self._at[n]) for n, place in enumerate(self.places)]
        )

    def catch_up(self, timeout_s: float = TIMEOUT_S) -> None:
        """Reads up to the end that the log has now; raises KafkaException, TimeoutError.

        After a failure it goes on with new clients: the brokers may be elsewhere by now.
        """
        try:
            self._read_on(timeout_s)
        except (KafkaException, TimeoutError):
            self._reconnect()
            raise

    def _read_on(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        ends = self.ends(timeout_s)
        while any(self._at[n] < end for n, end in ends.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the end of the log is not read within {timeout_s} s")
            for message in self._reader.consume(500, 0.05):
                self._take(message)

    def ends(self, timeout_s: float = TIMEOUT_S) -> dict[int, int]:
        """The end of the log by partition, open transactions included; raises KafkaException."""
        try:
            return {
                place.partition: self._ends.get_watermark_offsets(place, timeout=timeout_s)[1]
                for place in self.places
            }
        except KafkaException:
            self._reconnect()
            raise

    def _reconnect(self) -> None:
        self.close()
        self._connect()

    def _take(self, message: object) -> None:
        error = message.error()  # type: ignore[attr-defined]
        number, offset = message.partition(), message.offset()  # type: ignore[attr-defined]
        if error is None:
            self.records.append(as_raw(message))
            self._at[number] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._at[number] = max(self._at[number], offset)
        elif error.fatal():
            raise KafkaException(error)

    def close(self) -> None:
        """Forget the clients."""
        self._reader.close()
        self._ends.close()


class Watch:
    """A thread that makes sightings for the length of the block."""

    def __init__(
        self, bootstrap_servers: str, group: str, places: list[TopicPartition], finals: Tail
    ) -> None:
        self.sightings: list[Sighting] = []
        # It asks for the group's offsets and is no member of it.
        self._make_asker = partial(consumer, bootstrap_servers, group, **QUIET)
        self._asker = self._make_asker()
        self._places = places
        self._finals = finals
        self._known = 0  # finals that a sighting has
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._asker.close()

    def commits(self) -> dict[int, int]:
        """What the group has committed, by partition; raises KafkaException."""
        asker = self._asker
        try:
            answers = asker.committed(self._places, timeout=TIMEOUT_S)
            if failed := next((p.error for p in answers if p.error), None):
                raise KafkaException(failed)
        except KafkaException:
            self._asker = self._make_asker()
            raise
        return {p.partition: p.offset for p in answers if p.offset >= 0}

    def _run(self) -> None:
        while not self._done.wait(PAUSE_S):
            # A broker is away. Whoever cannot see the end of the finals has seen too little to
            # judge the commits.
            with contextlib.suppress(KafkaException, TimeoutError):
                self._look()

    def _look(self) -> None:
        commits = self.commits()
        self._finals.catch_up()
        fresh = self._finals.records[self._known :]
        self._known += len(fresh)
        self.sightings.append(Sighting(commits, frozenset(map(record_id, fresh))))
