"""A broker's topics, calls on them and worker processes without a model, for benchmarks."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from worker.call_files import CallAudio, read_call
from worker.devkafka_node import free_ports
from worker.feed import Feed
from worker.playback import CallPlan, PlannedMessage
from worker.topics import TopicSpec, ensure_topics

CALLS = sorted((Path(__file__).parents[2] / "worker/assets/calls").glob("*.wav"))
DEAF_WORKER = Path(__file__).parent / "deaf_worker.py"
CHUNK_MS = 100
PARTITIONS = 4
SESSION_TIMEOUT_MS = 6_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
QUIET = {"log_level": 0}
TIMEOUT_S = 120.0
SAMPLE = re.compile(r"(?P<name>[a-z_]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process and where its metrics are."""

    process: subprocess.Popen[bytes]
    port: int
    topic: str

    def cpu_s(self) -> float:
        """CPU time of the process and its threads so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def rss_bytes(self) -> int:
        """Memory that the process has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def metric(self, name: str) -> dict[str, float]:
        """A metric of the chunk topic by its other labels; empty while nobody listens."""
        address = f"http://127.0.0.1:{self.port}/metrics"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:  # it does not listen yet
            return {}
        found = (SAMPLE.match(line) for line in lines)
        mine = f'topic="{self.topic}"'
        return {
            m["labels"].replace(mine, "").strip(","): float(m["value"])
            for m in found
            if m and m["name"] == f"oasr_worker_{name}" and mine in m["labels"]
        }

    def counted(self) -> tuple[float, float]:
        """Messages that its client fetched, and those that it got."""
        fetched, consumed = (
            sum(self.metric(f"messages_{what}_total").values()) for what in ("fetched", "consumed")
        )
        return fetched, consumed

    def partitions(self) -> set[int]:
        """Partitions of the chunk topic that it has."""
        owned = self.metric("watermark_pinned_seconds")
        return {int(label.partition("=")[2].strip('"')) for label in owned}

    def end(self) -> None:
        """Ask it to end, and wait for it."""
        self.process.terminate()
        self.process.wait(TIMEOUT_S)


@dataclass
class Bench:
    """Topics of one measurement on a broker."""

    servers: str
    mode: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    due_ms: dict[tuple[int, int], float] = field(default_factory=dict)  # by place

    def __post_init__(self) -> None:
        names = ("chunks", "files", "transcripts", "partials", "events", "dead_letters", "state")
        self.topics = {name: f"bench.{self.run}.{name}" for name in names}
        admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        ensure_topics(admin, [TopicSpec(topic, PARTITIONS, 1) for topic in self.topics.values()])
        self.producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "partitioner": "murmur2_random",
                "linger.ms": 2,
                "queue.buffering.max.messages": 1_000_000,
                **QUIET,
            }
        )

    def send(self, planned: PlannedMessage, due_ms: float) -> None:
        """Produce a message that is due at a time of the wall clock."""

        def delivered(_error: object, message: object) -> None:
            place = message.partition(), message.offset()  # type: ignore[attr-defined]
            self.due_ms[place] = due_ms

        self.producer.produce(
            self.topics["chunks"],
            key=planned.session_id.encode(),
            value=planned.value,
            headers=list(planned.headers),
            on_delivery=delivered,
        )
        self.producer.poll(0)

    def worker(self, **more: str) -> Worker:
        """A worker process on the topics, with more variables in its environment."""
        (port,) = free_ports(1)
        settings = {
            "OASR_KAFKA__BOOTSTRAP_SERVERS": self.servers,
            "OASR_KAFKA__GROUP": self.run,
            "OASR_KAFKA__AUTO_OFFSET_RESET": "earliest",
            "OASR_KAFKA__SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            "OASR_HTTP__PORT": str(port),
            "OASR_LOG__LEVEL": "ERROR",
            "OASR_DELIVERY__MODE": self.mode,
            **{f"OASR_TOPICS__{name.upper()}": topic for name, topic in self.topics.items()},
        }
        kept = {name: text for name, text in os.environ.items() if not name.startswith("OASR_")}
        process = subprocess.Popen(
            [sys.executable, str(DEAF_WORKER)],
            env={**kept, **settings, **more, "OMP_NUM_THREADS": "1"},
        )
        return Worker(process, port, self.topics["chunks"])

    def watcher(self) -> Consumer:
        """Asks for the group's offsets and is no member of it."""
        return Consumer({"bootstrap.servers": self.servers, "group.id": self.run, **QUIET})

    def finals(self) -> Feed:
        """The finals from now on."""
        return Feed({"bootstrap.servers": self.servers, **QUIET}, [self.topics["transcripts"]])

    def committed(self, watcher: Consumer) -> int:
        """Messages that the group has committed."""
        places = [TopicPartition(self.topics["chunks"], n) for n in range(PARTITIONS)]
        return sum(max(0, place.offset) for place in watcher.committed(places, timeout=TIMEOUT_S))


def calls(number: int, seconds: float, name: str) -> list[CallPlan]:
    """Calls of so many seconds, made of the bundled ones one after the other."""
    audios = [read_call(path) for path in CALLS]
    plans = []
    for n in range(number):
        audio = audios[n % len(audios)]
        times = int(-(-seconds // audio.duration_s))
        whole = replace(audio, data=audio.data * times)
        plans.append(CallPlan(f"{name}-{n}", cut(whole, seconds), CHUNK_MS))
    return plans


def cut(audio: CallAudio, seconds: float) -> CallAudio:
    """The first seconds of a call."""
    return replace(audio, data=audio.piece(0, round(seconds * audio.sample_rate)))


def in_turn(plans: Sequence[CallPlan]) -> Iterator[PlannedMessage]:
    """The messages of calls that go on at the same time."""
    for row in itertools.zip_longest(*(plan.messages() for plan in plans)):
        yield from (planned for planned in row if planned is not None)
