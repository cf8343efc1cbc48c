"""Builds the loop from settings: lanes, sources and what they share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from oasr.audio.segmenter import SegmenterConfig
from worker.backpressure import Backpressure
from worker.chunk_lane import ChunkLane
from worker.clients import consumer_properties, state_reader_properties
from worker.cloudevents import Identity, ModelName
from worker.consumer import Assignee, Source, SourceOptions
from worker.contact import INTERVAL_MS, Contact
from worker.counters import CommittedLatencies, LaneMetrics, MessageCounters
from worker.delivery import Outputs, outbox_of, transaction_tools
from worker.fetched import Fetched
from worker.file_lane import FileLane, FileLaneOptions
from worker.file_run import FileTools
from worker.gauges import Gauges, Subjects, Tracked
from worker.health import Health
from worker.isolated_reading import Readers
from worker.lane_tools import LaneTools
from worker.live_board import LiveBoard
from worker.live_snapshot import Scene, show_on
from worker.loading import ChildDeaths, LoadedModels
from worker.loop import Loop, Machinery
from worker.media_clock import ClockLimits
from worker.metrics import Metrics
from worker.partition import Surroundings
from worker.ports import Limits
from worker.publisher import Publisher
from worker.recognizers import PartitionSpeech
from worker.reorder import ReorderLimits
from worker.seldom import Seldom
from worker.settings import Settings
from worker.state_reader import StateReader
from worker.state_topic import StateTopic
from worker.topic_ids import topic_id
from worker.tracing import make_tracer
from worker.watchdog import LogEnds, Watchdog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """Where the worker is seen from."""

    metrics: Metrics
    health: Health
    board: LiveBoard | None = None


def assemble(
    settings: Settings,
    loaded: LoadedModels,
    deaths: ChildDeaths,
    sink: Outputs,
    admin: AdminClient,
    watched: Watched,
) -> Loop:
    """A loop that is subscribed and ready to turn, and that tells the board what it does."""
    shared = _Shared(settings, loaded, deaths, sink, admin, watched)
    chunks, files = shared.chunk_lane(), shared.file_lane()
    kafka, topics = settings.kafka, settings.topics
    lanes: list[tuple[Source, Mapping[int, Tracked]]] = []
    if settings.reads_calls:
        chunks.source = shared.source(topics.chunks, kafka.group, chunks, shared.contact)
        lanes.append((chunks.source, chunks.partitions))
    if settings.reads_files:
        files.source = shared.source(topics.files, settings.files_group, files, Contact())
        lanes.append((files.source, files.partitions))
    deaths.told += [chunks.child_died, files.child_died]
    subjects = Subjects(chunks, files, lanes, loaded.models)
    gauges = Gauges(watched.metrics, subjects, time.monotonic)
    machinery = Machinery(
        chunks=chunks,
        files=files,
        recognizer=loaded.models,
        sink=sink,
        health=watched.health,
        gauges=gauges,
        joined=lambda: all(source.joined for source, _ in lanes),
        now=time.monotonic,
        show=shared.show(Scene(subjects, gauges.recent_steps, shared.latencies_s)),
    )
    return Loop(machinery, settings.drain_timeout_ms / 1000)


class _Shared:
    """What both lanes are built from."""

    def __init__(
        self,
        settings: Settings,
        loaded: LoadedModels,
        deaths: ChildDeaths,
        sink: Outputs,
        admin: AdminClient,
        watched: Watched,
    ) -> None:
        self.settings = settings
        self._loaded = loaded
        self._deaths = deaths
        self.contact = Contact()  # of the live lane
        self._outputs = sink
        self._outbox = outbox_of(sink)
        self._admin = admin
        self._metrics = metrics = watched.metrics
        self._health = watched.health
        self._board = watched.board
        self._seldom = Seldom(time.monotonic)
        self._identity = Identity(settings.kafka.group, loaded.usual, loaded.names)
        self._latencies = CommittedLatencies(metrics, time.monotonic)
        exactly_once = settings.delivery.mode == "exactly-once"
        self._counters = self._latencies if exactly_once else MessageCounters(metrics)
        if (tracer := make_tracer(settings.tracing)) is not None:
            self._counters.on_work.append(tracer)
        self.latencies_s = self._counters.recent_latencies_s

    def chunk_lane(self) -> ChunkLane:
        settings, kafka = self.settings, self.settings.kafka
        sessions, pressure = settings.sessions, settings.backpressure
        surroundings = Surroundings(
            topic=settings.topics.chunks,
            speech=lambda owner: PartitionSpeech(self._loaded.models, owner),
            records=Publisher(self._identity, now_ms),
            outbox=self._outbox,
            counters=self._counters,
            now=time.monotonic,
            now_ms=now_ms,
            defaults=settings.chunk_defaults(),
            limits=Limits(
                idle_finalize_s=sessions.idle_finalize_ms / 1000,
                session_ttl_s=sessions.ttl_ms / 1000,
                emit_empty=sessions.emit_empty,
                max_sessions=sessions.max_open,
                reorder=ReorderLimits(sessions.reorder_messages, sessions.reorder_audio_ms),
                clock=ClockLimits(sessions.clock_tolerance_ms, sessions.max_fill_ms),
            ),
            endpointing=endpointing(settings),
            admission=self._loaded.calls(),
            second_passes=self._loaded.second_passes(settings.second_pass),
            cuts_at_once=settings.delivery.mode == "exactly-once",
        )
        backpressure = Backpressure(
            pressure.high_audio_s,
            pressure.low_audio_s,
            pressure.min_pause_ms / 1000,
            time.monotonic,
        )
        return ChunkLane(
            self._tools(settings.topics.chunks, kafka.group, settings.reads_calls),
            surroundings,
            backpressure,
            in_contact=lambda: self.contact.is_there,
        )

    def file_lane(self) -> FileLane:
        settings = self.settings
        tools = FileTools(
            recognizer=self._loaded.models.usual,
            identity=self._identity,
            send=self._outbox.send,
            counters=self._counters,
            now_ms=now_ms,
            emit_empty=settings.sessions.emit_empty,
        )
        files = settings.files
        options = FileLaneOptions(
            readers=Readers(files.limits(), lambda: self._deaths.count("reader")),
            workers=files.workers,
            endpointing=endpointing(settings),
            admission=self._loaded.files(),
            recognizer_of=self._loaded.models.of,
        )
        topic, group = settings.topics.files, settings.files_group
        return FileLane(self._tools(topic, group, settings.reads_files), tools, options)

    def source(self, topic: str, group: str, lane: Assignee, contact: Contact) -> Source:
        fetched = Fetched(self._metrics.messages_fetched.labels(topic).inc)

        def told(text: str) -> None:
            statistics = orjson.loads(text)
            fetched.told(statistics)
            contact.told(statistics)
            self._heed_brokers(statistics)

        properties: dict[str, Any] = {
            **consumer_properties(self.settings, group),
            "statistics.interval.ms": INTERVAL_MS,
            "stats_cb": told,
        }
        options = SourceOptions(
            properties=properties,
            topic=topic,
            auto_offset_reset=self.settings.kafka.auto_offset_reset,
            on_client_error=lambda error: self._on_consumer_error(error, contact),
            cluster=self._admin,
            watchdog=Watchdog(
                topic,
                LogEnds(self._admin, topic),
                LaneMetrics(self._metrics, topic),
                time.monotonic,
                self.settings.kafka.stalled_after_ms / 1000,
            ),
        )
        return Source(options, lane)

    def show(self, scene: Scene) -> Callable[[], None]:
        names = self._loaded.names
        shown = self._loaded.usual
        if len(names) > 1:
            shown = ModelName(", ".join(f"{n}: {model.name}" for n, model in names.items()), "")
        return show_on(self._board, scene, self.settings, shown)

    def _tools(self, topic: str, group: str, is_read: bool) -> LaneTools:
        counters = LaneMetrics(self._metrics, topic)
        state = self.settings.topics.state
        reader = StateReader(state, self._state_consumer, counters, time.monotonic)
        # A lane that is not read owns nothing, and no transactions in its group's name.
        transactions = (
            transaction_tools(
                self.settings, group, topic, self._outputs, self._metrics, self._latencies
            )
            if is_read
            else None
        )
        return LaneTools(
            topic_id=lambda: topic_id(self._admin, topic),
            states=StateTopic(group, self._outbox, reader),
            flush=self._outputs.flush,
            counters=counters,
            now=time.monotonic,
            commit_interval_s=self.settings.commits.interval_ms / 1000,
            transactions=transactions,
        )

    def _state_consumer(self) -> Consumer:
        return Consumer({**state_reader_properties(self.settings), "error_cb": self._on_error})

    def _heed_brokers(self, statistics: Mapping[str, Any]) -> None:
        brokers = statistics.get("brokers", {}).values()
        if any(broker.get("state") == "UP" for broker in brokers):
            self._health.saw_broker()

    def _on_consumer_error(self, error: KafkaError, contact: Contact) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            contact.all_down()
        self._on_error(error)

    def _on_error(self, error: KafkaError) -> None:
        ending = self._seldom.ending(error.code())
        if ending is not None:
            logger.warning("Kafka client: %s%s", error.str(), ending)
        self._metrics.kafka_errors.labels("true" if error.fatal() else "false").inc()


def endpointing(settings: Settings) -> SegmenterConfig:
    """The segmenter's share of the settings."""
    return SegmenterConfig(**settings.endpointing.model_dump())


def now_ms() -> int:
    """Wall clock, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
