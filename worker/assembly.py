"""Builds the loop from settings: lanes, sources and what they share."""

from __future__ import annotations

import time
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from oasr.audio.segmenter import SegmenterConfig
from oasr.engine.engine import ASREngine
from worker.admission import Admission
from worker.backpressure import Backpressure
from worker.chunk_lane import ChunkLane
from worker.clients import consumer_properties, state_reader_properties
from worker.cloudevents import Identity, ModelName
from worker.consumer import Assignee, Source, SourceOptions
from worker.contact import INTERVAL_MS, Contact
from worker.counters import LaneMetrics, MessageCounters
from worker.file_lane import FileLane, FileLaneOptions
from worker.file_run import FileTools
from worker.file_source import FileLimits
from worker.gauges import Gauges, Subjects
from worker.health import Health
from worker.lane_tools import LaneTools
from worker.loop import Loop, Machinery
from worker.metrics import Metrics
from worker.partition import Surroundings
from worker.ports import Limits
from worker.producer import Sink
from worker.publisher import Publisher
from worker.recognizer import PartitionSpeech, Recognizer
from worker.settings import Settings
from worker.state_reader import StateReader
from worker.state_topic import StateTopic
from worker.topic_ids import topic_id


def assemble(
    settings: Settings,
    engine: ASREngine,
    sink: Sink,
    admin: AdminClient,
    metrics: Metrics,
    health: Health,
) -> Loop:
    """A loop that is subscribed and ready to turn."""
    shared = _Shared(settings, engine, sink, admin, metrics, health)
    chunks, files = shared.chunk_lane(), shared.file_lane()
    kafka, topics = settings.kafka, settings.topics
    chunk_source = shared.source(topics.chunks, kafka.group, chunks, shared.contact)
    file_source = shared.source(topics.files, settings.files_group, files, Contact())
    chunks.source, files.source = chunk_source, file_source
    subjects = Subjects(chunks, files, (chunk_source, file_source), shared.recognizer)
    machinery = Machinery(
        chunks=chunks,
        files=files,
        recognizer=shared.recognizer,
        sink=sink,
        health=health,
        gauges=Gauges(metrics, subjects, time.monotonic),
        joined=lambda: chunk_source.joined and file_source.joined,
        now=time.monotonic,
    )
    return Loop(machinery, settings.drain_timeout_ms / 1000)


class _Shared:
    """What both lanes are built from."""

    def __init__(
        self,
        settings: Settings,
        engine: ASREngine,
        sink: Sink,
        admin: AdminClient,
        metrics: Metrics,
        health: Health,
    ) -> None:
        self.settings = settings
        self.recognizer = Recognizer(engine, time.monotonic)
        self.contact = Contact()  # of the live lane
        self._sink = sink
        self._admin = admin
        self._metrics = metrics
        self._health = health
        info = engine.model_info
        self._admission = Admission(
            info.languages, settings.decoding.options(), engine.check_decoding
        )
        self._identity = Identity(settings.kafka.group, ModelName(info.name, info.digest))
        self._counters = MessageCounters(metrics)

    def chunk_lane(self) -> ChunkLane:
        settings = self.settings
        sessions, pressure = settings.sessions, settings.backpressure
        surroundings = Surroundings(
            topic=settings.topics.chunks,
            speech=lambda number: PartitionSpeech(self.recognizer, number),
            records=Publisher(self._identity, now_ms),
            outbox=self._sink,
            counters=self._counters,
            now=time.monotonic,
            now_ms=now_ms,
            defaults=settings.chunk_defaults(),
            limits=Limits(
                idle_finalize_s=sessions.idle_finalize_ms / 1000,
                session_ttl_s=sessions.ttl_ms / 1000,
                emit_empty=sessions.emit_empty,
            ),
            endpointing=endpointing(settings),
            admission=self._admission,
        )
        backpressure = Backpressure(
            pressure.high_audio_s,
            pressure.low_audio_s,
            pressure.min_pause_ms / 1000,
            time.monotonic,
        )
        return ChunkLane(
            self._tools(settings.topics.chunks),
            surroundings,
            backpressure,
            in_contact=lambda: self.contact.is_there,
        )

    def file_lane(self) -> FileLane:
        settings = self.settings
        tools = FileTools(
            recognizer=self.recognizer,
            identity=self._identity,
            send=self._sink.send,
            counters=self._counters,
            now_ms=now_ms,
            emit_empty=settings.sessions.emit_empty,
        )
        files = settings.files
        options = FileLaneOptions(
            limits=FileLimits(files.roots, files.max_bytes, files.max_duration_s),
            workers=files.workers,
            endpointing=endpointing(settings),
            admission=self._admission,
        )
        return FileLane(self._tools(settings.topics.files), tools, options)

    def source(self, topic: str, group: str, lane: Assignee, contact: Contact) -> Source:
        properties: dict[str, Any] = {
            **consumer_properties(self.settings, group),
            "statistics.interval.ms": INTERVAL_MS,
            "stats_cb": lambda text: self._on_statistics(text, contact),
        }
        options = SourceOptions(
            properties=properties,
            topic=topic,
            auto_offset_reset=self.settings.kafka.auto_offset_reset,
            on_client_error=lambda error: self._on_consumer_error(error, contact),
        )
        return Source(options, lane)

    def _tools(self, topic: str) -> LaneTools:
        counters = LaneMetrics(self._metrics, topic)
        state = self.settings.topics.state
        reader = StateReader(state, self._state_consumer, counters, time.monotonic)
        group = (
            self.settings.kafka.group
            if topic == self.settings.topics.chunks
            else (self.settings.files_group)
        )
        return LaneTools(
            topic_id=lambda: topic_id(self._admin, topic),
            states=StateTopic(group, self._sink, reader),
            flush=self._sink.flush,
            counters=counters,
            now=time.monotonic,
            commit_interval_s=self.settings.commits.interval_ms / 1000,
        )

    def _state_consumer(self) -> Consumer:
        return Consumer({**state_reader_properties(self.settings), "error_cb": self._on_error})

    def _on_statistics(self, text: str, contact: Contact) -> None:
        statistics = orjson.loads(text)
        contact.told(statistics)
        brokers = statistics.get("brokers", {}).values()
        if any(broker.get("state") == "UP" for broker in brokers):
            self._health.saw_broker()

    def _on_consumer_error(self, error: KafkaError, contact: Contact) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            contact.all_down()
        self._on_error(error)

    def _on_error(self, error: KafkaError) -> None:
        self._metrics.kafka_errors.labels("true" if error.fatal() else "false").inc()


def endpointing(settings: Settings) -> SegmenterConfig:
    """The segmenter's share of the settings."""
    return SegmenterConfig(**settings.endpointing.model_dump())


def now_ms() -> int:
    """Wall clock, milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
