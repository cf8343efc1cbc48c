"""`oasr-worker demo`: a broker, a worker and calls, from nothing to transcripts and a verdict."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from rich.console import Console

from worker.connections import Report, Sender, connection
from worker.demo_calls import Programme, programme
from worker.demo_report import Tally
from worker.demo_summary import print_summary
from worker.demo_worker import (
    RunningWorker,
    WorkerFailed,
    named_bootstrap_servers,
    worker,
    write_settings,
)
from worker.devkafka import (
    DEFAULT_CACHE_DIR,
    Broker,
    BrokerKind,
    BrokerOptions,
    BrokerUnavailable,
    local_broker,
)
from worker.feed import Feed
from worker.live import LiveTranscripts
from worker.playback import PlannedMessage, Player
from worker.produce import run_id
from worker.settings import Settings, SettingsError
from worker.topics import TopicError, ensure_topics, topic_specs, touch_topics

_PARTITIONS: Final = 4
_POLL_S: Final = 0.02
_STRAGGLERS_S: Final = 5.0  # for finals, once every call has ended and every file is completed


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says; `broker` None climbs the whole ladder."""

    calls: int = 8
    speed: float = 1.0
    plain: bool = False
    time_limit_s: float = 180.0
    broker: str | None = None
    cache_dir: Path | None = None


def demo(options: DemoOptions) -> int:
    """Exit status 0 only if every call and file ended with exactly the finals it states.

    Ctrl-C leaves at once with KeyboardInterrupt, after broker and worker were stopped.
    """
    notes = Console(stderr=True, highlight=False)
    try:
        with (
            local_broker(_broker_options(options), say=notes.print) as broker,
            tempfile.TemporaryDirectory(prefix="oasr-demo-") as folder,
        ):
            return _demo_on(broker, Path(folder), options, notes)
    except (BrokerUnavailable, WorkerFailed, TopicError, KafkaException) as error:
        notes.print(f"the demo failed: {error}", markup=False)
    except SettingsError as error:
        notes.print(str(error), markup=False)
        return 2
    return 1


def _broker_options(options: DemoOptions) -> BrokerOptions:
    kinds = tuple(BrokerKind) if options.broker is None else (BrokerKind(options.broker),)
    return BrokerOptions(
        bootstrap_servers=named_bootstrap_servers() if options.broker is None else None,
        kinds=kinds,
        cache_dir=options.cache_dir or DEFAULT_CACHE_DIR,
    )


def _demo_on(broker: Broker, folder: Path, options: DemoOptions, notes: Console) -> int:
    run = run_id()
    played = programme(options.calls, run)
    settings_path, log_path = folder / "demo.yaml", folder / "worker.log"
    settings = write_settings(settings_path, broker.bootstrap_servers, run, _PARTITIONS)
    with _topics(broker, settings):
        notes.print("starting the worker")
        with worker(settings_path, settings, log_path) as running:
            if settings.live_page.enabled:
                page = settings.live_page
                notes.print(f"live page: http://{page.host}:{page.port}/")
            notes.print(f"playing {len(played.plans)} calls and {len(played.files)} recordings")
            return _Show(settings, played, options, notes).run(running)


@contextmanager
def _topics(broker: Broker, settings: Settings) -> Iterator[None]:
    """The demo's topics; a broker that stays when the demo is over gets rid of them again."""
    admin = AdminClient(connection(settings))
    specs = topic_specs(settings)
    created: list[str] = []
    if broker.creates_topics:
        created = ensure_topics(admin, specs)
    else:
        touch_topics(admin, specs)
    try:
        yield
    finally:
        if broker.kind is BrokerKind.GIVEN and created:
            for outcome in admin.delete_topics(created).values():
                outcome.exception()  # waits; a topic that stays harms nobody


class _Show:
    """One performance: plays, watches, and gives the verdict."""

    def __init__(
        self, settings: Settings, played: Programme, options: DemoOptions, notes: Console
    ) -> None:
        self._settings = settings
        self._played = played
        self._options = options
        self._notes = notes
        self._sender = Sender(connection(settings))
        self._tally = Tally(played.expected)
        self._player = Player(self._send, time.monotonic, options.speed)
        self._closed_s: float | None = None

    def run(self, running: RunningWorker) -> int:
        """The exit status, after the summary was printed."""
        console = Console()
        topics = self._settings.topics
        watched = [topics.transcripts, topics.partials, topics.events, topics.dead_letters]
        began_s = time.monotonic()
        with (
            Feed(connection(self._settings), watched) as feed,
            LiveTranscripts(console, self._options.plain) as live,
        ):
            self._begin()
            timed_out = self._watch(running, feed, live)
        problems = self._tally.problems()
        if timed_out:
            limit = f"{self._options.time_limit_s:.0f} s"
            problems.insert(0, f"the time limit of {limit} is over (--time-limit)")
        print_summary(console, self._tally.summary(), time.monotonic() - began_s, problems)
        if timed_out:
            self._notes.print(running.log_tail(), markup=False)
        return 1 if problems else 0

    def _begin(self) -> None:
        now_s = time.monotonic()
        count = len(self._played.plans)
        for number, plan in enumerate(self._played.plans):
            self._player.add(plan, now_s + plan.chunk_ms / 1000 * number / count)
        for file_id, message in self._played.files:
            self._sender.send(self._settings.topics.files, file_id, message.value, message.headers)

    def _watch(self, running: RunningWorker, feed: Feed, live: LiveTranscripts) -> bool:
        """Plays and reads until all is there; True when the time limit came first."""
        deadline_s = time.monotonic() + self._options.time_limit_s
        while time.monotonic() < deadline_s:
            wait_s = self._player.pump()
            self._sender.poll(0)
            records = feed.poll(_POLL_S if wait_s is None else min(wait_s, _POLL_S))
            now_s = time.monotonic()
            for record in records:
                self._tally.see(record, now_s)
            live.show(records)
            if wait_s is None and self._settled(now_s):
                return False
            running.check()
        return True

    def _settled(self, now_s: float) -> bool:
        if self._tally.complete:
            return True
        if not self._tally.closed:
            return False
        self._closed_s = self._closed_s or now_s
        return now_s - self._closed_s > _STRAGGLERS_S

    def _send(self, message: PlannedMessage) -> None:
        topic = self._settings.topics.chunks
        report = self._noting_place(time.monotonic())
        self._sender.send(topic, message.session_id, message.value, message.headers, report)

    def _noting_place(self, sent_s: float) -> Report:
        def report(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                self._tally.produced(partition, offset, sent_s)

        return report
