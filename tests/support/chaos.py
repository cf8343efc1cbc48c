"""Calls, workers and brokers in trouble: what was promised is compared with what came.

`make chaos ARGS=--help` tells the sizes.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from tests.support.chaos_acts import READY_S, Act, Crew, Dose, Fellow, Monkey
from tests.support.chaos_oracle import Outputs, Verdict, compare
from tests.support.chaos_watch import Tail, Watch
from tests.support.kafka import Topics, WorkerProcess, consume_all, create_topics, producer
from tests.support.worker_calls import all_ended, excerpt
from worker.devkafka import Broker, BrokerKind
from worker.devkafka_server import kafka_nodes
from worker.playback import CallPlan, PlannedMessage, Player

GROUP = "chaos"
EXACTLY_ONCE = "exactly-once"
LONGEST_CALL_START_S = 20.0  # the bundled calls are longer than this and a call together
CHUNK_MS = 200
SETTLE_S = 600.0
COMMIT_S = 60.0
SETTINGS = {
    "OASR_KAFKA__SESSION_TIMEOUT_MS": "4000",
    # Time-outs are decided by the clock: an undisturbed run would not have them.
    "OASR_SESSIONS__IDLE_FINALIZE_MS": "3600000",
    # One window of each call a step, so that there is always something in the middle.
    "OASR_ENGINE__MAX_CHUNKS_PER_STEP": "1",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    workers: int = 2
    nodes: int = 1
    partitions: int = 4
    calls: int = 8
    call_s: float = 16.0
    speed: float = 2.0
    seconds: float = 20.0
    seed: int = 1
    mode: str = "at-least-once"
    protocol: str = "classic"
    static: bool = False  # each worker keeps its id in the group over all of its lifetimes
    settings: tuple[tuple[str, str], ...] = ()  # of the workers, more than usual
    acts: tuple[tuple[Act, int], ...] = (
        (Act.KILL, 3),
        (Act.FREEZE, 1),
        (Act.LEAVE, 1),
        (Act.NODE_KILL, 1),
        (Act.NODE_FREEZE, 0),
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What was done and what came of it."""

    sizes: Sizes
    verdict: Verdict
    done: Counter[Act]
    lifetimes: int
    ended_alone: int
    stayed: tuple[str, ...]  # workers that did not leave when they were told to
    disturbed_s: float
    uncommitted: int
    tracebacks: int

    @property
    def wrong(self) -> list[str]:
        """What breaks the promise; empty when it was kept."""
        lines = self.verdict.wrong(self.sizes.mode == EXACTLY_ONCE)
        if self.uncommitted:
            lines.append(f"{self.uncommitted} messages were never committed")
        if self.stayed:
            lines.append(f"{len(self.stayed)} workers did not leave: {', '.join(self.stayed)}")
        if self.tracebacks:
            lines.append(f"{self.tracebacks} tracebacks in the workers' logs")
        return lines


def run(sizes: Sizes, cache_dir: Path, folder: Path, say: Callable[[str], object] = str) -> Report:
    """One run on brokers of its own, whose jars are in a cache; `folder` gets the workers' logs."""
    with kafka_nodes(cache_dir, say, sizes.nodes) as nodes:
        play = Play(sizes, ",".join(node.address for node in nodes), folder, say)
        rng, dose = random.Random(sizes.seed), Dose(dict(sizes.acts), sizes.seconds)
        return play.through(Monkey(play.fellows, nodes, rng, dose, say))


class Play:
    """Calls on topics of their own, and the workers that they are for."""

    def __init__(
        self, sizes: Sizes, servers: str, folder: Path, say: Callable[[str], object]
    ) -> None:
        self._sizes = sizes
        self._servers = servers
        self.topics = self._create_topics()
        self._folder = folder
        self.say = say
        self._rng = random.Random(sizes.seed)
        self.fellows = [
            Fellow(self._worker(f"worker-{n}", self.topics, GROUP)) for n in range(sizes.workers)
        ]

    def through(self, crew: Crew) -> Report:
        """What the crew makes of the calls, compared with what an undisturbed worker makes."""
        finals, events = (self._tail(t) for t in (self.topics.transcripts, self.topics.events))
        chunks = self._tail(self.topics.chunks)
        watch = Watch(self._servers, GROUP, chunks.places, finals)
        began = time.monotonic()
        try:
            with watch:
                self._play(crew, events)
                uncommitted = uncommitted_messages(watch, chunks)
        finally:
            crew.end()
        took_s = time.monotonic() - began
        for tail in (finals, events):
            # What a killed worker had open hides the end until the broker gives it up.
            tail.catch_up(COMMIT_S)
        disturbed = Outputs(finals.records, events.records)
        self.say(f"{took_s:.0f} s; now the undisturbed run")
        undisturbed = self._undisturbed()
        for tail in (chunks, finals, events):
            tail.close()
        return Report(
            sizes=self._sizes,
            verdict=compare(disturbed, undisturbed, watch.sightings),
            done=crew.done,
            lifetimes=sum(fellow.lifetimes for fellow in self.fellows),
            ended_alone=crew.ended_alone,
            stayed=tuple(crew.stayed),
            disturbed_s=took_s,
            uncommitted=uncommitted,
            tracebacks=sum(fellow.process.log().count("Traceback") for fellow in self.fellows),
        )

    def _play(self, crew: Crew, events: Tail) -> None:
        """Calls play, the crew acts; until all calls have ended and everybody is back."""
        speed = self._sizes.speed
        sender = producer(self._servers, log_level=0)
        player = Player(lambda planned: self._send(sender, planned), time.monotonic, speed)
        crew.begin()
        self._add_calls(player)
        deadline = time.monotonic() + self._sizes.seconds + SETTLE_S
        ended = all_ended(self._sizes.calls)
        while not (player.playing == 0 and crew.idle and ended(events.records)):
            if time.monotonic() > deadline:
                self.say(f"not all calls have ended after {SETTLE_S:.0f} s of rest")
                break
            wait_s = player.pump()
            sender.poll(0)
            crew.tick()
            if wait_s is None:
                read_what_can_be_read(events)
            time.sleep(0.05 if wait_s is None else min(0.05, wait_s))
        assert sender.flush(60) == 0

    def _add_calls(self, player: Player) -> None:
        sizes = self._sizes
        now_s = time.monotonic()
        latest_s = max(0.0, sizes.seconds - sizes.call_s / sizes.speed)
        for number in range(sizes.calls):
            audio = excerpt(number, self._rng.uniform(0, LONGEST_CALL_START_S), sizes.call_s)
            plan = CallPlan(f"call-{number:04}", audio, CHUNK_MS)
            player.add(plan, now_s + self._rng.uniform(0, latest_s))

    def _send(self, sender: Producer, planned: PlannedMessage) -> None:
        sender.produce(
            self.topics.chunks,
            key=planned.session_id.encode(),
            value=planned.value,
            headers=list(planned.headers),
        )

    def _undisturbed(self) -> Outputs:
        """What another group makes of the same messages, published elsewhere."""
        topics = replace(self._create_topics(), chunks=self.topics.chunks)
        worker = self._worker("undisturbed", topics, "undisturbed")
        worker.start()
        try:
            worker.await_ready(READY_S)
            events = consume_all(
                self._servers, topics.events, all_ended(self._sizes.calls), SETTLE_S
            )
        finally:
            if worker.running:
                worker.terminate()
        finals = self._tail(topics.transcripts)
        finals.catch_up()
        finals.close()
        return Outputs(finals.records, events)

    def _create_topics(self) -> Topics:
        broker = Broker(self._servers, BrokerKind.KAFKA)
        return create_topics(broker, self._sizes.partitions, replication=-1)

    def _tail(self, topic: str) -> Tail:
        return Tail(self._servers, topic, self._sizes.partitions)

    def _worker(self, name: str, topics: Topics, group: str) -> WorkerProcess:
        settings = {**SETTINGS, "OASR_KAFKA__GROUP_PROTOCOL": self._sizes.protocol}
        if self._sizes.protocol == "consumer":
            settings["OASR_KAFKA__SESSION_TIMEOUT_MS"] = ""
        if self._sizes.mode == EXACTLY_ONCE:
            settings["OASR_DELIVERY__MODE"] = EXACTLY_ONCE
        if self._sizes.static:
            settings["OASR_KAFKA__GROUP_INSTANCE_ID"] = name
        settings |= dict(self._sizes.settings)
        return WorkerProcess(self._servers, topics, group, self._folder / f"{name}.log", settings)


def read_what_can_be_read(tail: Tail) -> None:
    """Catches up, unless a broker is away just now."""
    with contextlib.suppress(KafkaException, TimeoutError):
        tail.catch_up(timeout_s=5.0)


def uncommitted_messages(watch: Watch, chunks: Tail) -> int:
    """Messages that the group has not committed, once it had time to."""
    left = 1
    deadline = time.monotonic() + COMMIT_S
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        with contextlib.suppress(KafkaException):
            left = sum(chunks.ends().values()) - sum(watch.commits().values())
    return left
