"""The gauges say how things stand, once a second."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from oasr.engine.stats import StepStats
from tests.support.lanes import Clock
from worker.commits import CommitResult
from worker.counters import LaneMetrics, MessageCounters, SinkMetrics
from worker.errors import ErrorCode
from worker.gauges import Gauges, Subjects
from worker.messages import Kind
from worker.metrics import Metrics
from worker.models import Step
from worker.offsets import OffsetTracker


class Bench:
    """Gauges of a worker with one partition of chunks."""

    def __init__(self) -> None:
        self.registry, self.clock = CollectorRegistry(), Clock()
        self.metrics = Metrics(self.registry)
        self.tracker = OffsetTracker(5)
        segment = SimpleNamespace(open_segment=object()), SimpleNamespace(open_segment=None)
        session = SimpleNamespace(channels=dict(enumerate(segment)))
        partition = SimpleNamespace(
            number=3,
            start_counter=5,
            tracker=self.tracker,
            sessions=SimpleNamespace(all=lambda: [session]),
        )
        self.partitions = {3: partition}
        recognizer = SimpleNamespace(
            held_s=lambda: {3: 1.5, 4: 2.0},
            undecoded_age_s=lambda: 0.7,
            open_requests=lambda: {"live": 3, "files": 1},
        )
        self.high: int | None = 25
        chunks = SimpleNamespace(
            topic="chunks",
            paused=frozenset({3}),
            lag=lambda _partition, position: None if self.high is None else self.high - position,
        )
        files = SimpleNamespace(topic="files", paused=frozenset(), lag=lambda _p, _o: None)
        subjects = Subjects(
            chunks=SimpleNamespace(partitions=self.partitions),  # type: ignore[arg-type]
            files=SimpleNamespace(partitions={}, open_jobs=2, oldest_age_s=lambda: 9.0),  # type: ignore[arg-type]
            lanes=[(chunks, self.partitions), (files, {})],  # type: ignore[list-item]
            recognizer=recognizer,  # type: ignore[arg-type]
        )
        self.gauges = Gauges(self.metrics, subjects, self.clock)

    def of(self, metric: object, *labels: str) -> float:
        child = metric.labels(*labels) if labels else metric  # type: ignore[attr-defined]
        (sample,) = [s for s in child._samples() if not s.name.endswith("_created")]
        return float(sample.value)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_they_say_how_much_work_is_at_hand(bench: Bench) -> None:
    bench.gauges.update()
    metrics = bench.metrics

    assert bench.of(metrics.open_sessions) == 1
    assert bench.of(metrics.open_segments) == 1
    assert bench.of(metrics.open_files) == 2
    assert bench.of(metrics.runnable_audio) == 3.5
    assert bench.of(metrics.undecoded_audio, "live") == 0.7
    assert bench.of(metrics.undecoded_audio, "files") == 9.0
    assert bench.of(metrics.assigned_partitions, "chunks") == 1
    assert bench.of(metrics.assigned_partitions, "files") == 0
    assert bench.of(metrics.paused_partitions, "chunks") == 1
    assert bench.of(metrics.isolated_partitions, "chunks") == 1
    assert bench.of(metrics.isolated_partitions, "files") == 0
    assert bench.of(metrics.consumer_lag, "chunks", "3") == 20


def test_they_are_read_once_a_second(bench: Bench) -> None:
    bench.gauges.update()
    bench.high = 26
    bench.clock.now += 0.5
    bench.gauges.update()
    assert bench.of(bench.metrics.consumer_lag, "chunks", "3") == 20

    bench.clock.now += 0.5
    bench.gauges.update()
    assert bench.of(bench.metrics.consumer_lag, "chunks", "3") == 21


def test_a_lag_that_is_not_known_stays_as_it_was(bench: Bench) -> None:
    bench.gauges.update()
    bench.high = None
    bench.clock.now += 1
    bench.gauges.update()

    assert bench.of(bench.metrics.consumer_lag, "chunks", "3") == 20


def test_they_say_for_how_long_one_message_has_pinned_the_watermark(bench: Bench) -> None:
    def pinned_s(after_s: float) -> float:
        bench.clock.now += after_s
        bench.gauges.update()
        return bench.of(bench.metrics.watermark_pinned, "chunks", "3")

    assert pinned_s(1) == 0
    bench.tracker.received(5)
    bench.tracker.received(6)
    assert pinned_s(1) == 0
    assert pinned_s(4) == 4
    bench.tracker.done(5)
    assert pinned_s(2) == 0
    assert pinned_s(3) == 3
    bench.tracker.done(6)
    assert pinned_s(1) == 0


def test_steps_are_counted_with_what_they_served(bench: Bench) -> None:
    work = StepStats(step_s=0.25, streams=3, offline_requests=1, near_ties=2)
    bench.gauges.stepped(Step("live", work))
    bench.gauges.stepped(Step("live", StepStats(step_s=0.25)))
    bench.gauges.stepped(Step("files", StepStats(step_s=8.0, offline_requests=4), is_ours=False))

    assert bench.of(bench.metrics.model_busy, "live") == 0.5
    assert bench.of(bench.metrics.model_busy, "files") == 8.0
    assert bench.of(bench.metrics.engine_steps) == 2
    assert bench.metrics.engine_batch_size._sum.get() == 4
    assert bench.metrics.engine_step_duration._sum.get() == 0.5
    assert bench.of(bench.metrics.engine_near_ties) == 2


def test_they_say_where_the_caches_of_open_streams_are(bench: Bench) -> None:
    work = StepStats(streams=1, kv_blocks=8, kv_blocks_used=6, kv_block_bytes=1000, parked_bytes=70)
    bench.gauges.stepped(Step("live", work))

    cache = bench.metrics.engine_cache
    found = [bench.of(cache, "live", place) for place in ("pool", "used", "parked")]
    assert found == [8000, 6000, 70]


@pytest.mark.parametrize("result", CommitResult)
def test_every_answer_to_a_commit_is_counted(bench: Bench, result: CommitResult) -> None:
    names = {"done": "ok", "retry": "retried", "lost": "lost"}
    lane = LaneMetrics(bench.metrics, "chunks")

    lane.commit(3, result.value)

    assert bench.of(bench.metrics.commits, names.get(result.value, "failed")) == 1
    lane.commit_held(3)
    lane.state_read("gone")
    lane.starts(3, 2)
    assert bench.metrics.partition_starts.labels("chunks", 3)._value.get() == 2
    assert bench.of(bench.metrics.commits, "held") == 1
    assert bench.of(bench.metrics.state_reads, "gone") == 1
    too_large = bench.of(bench.metrics.map_too_large)
    assert too_large == (result is CommitResult.TOO_LARGE)


def test_what_happens_to_messages_and_records_is_counted(bench: Bench) -> None:
    metrics = bench.metrics
    messages, sink, lane = (
        MessageCounters(metrics),
        SinkMetrics(metrics),
        LaneMetrics(metrics, "chunks"),
    )
    messages.consumed("chunks")
    messages.processed("chunks", "ok")
    messages.dead_letter(ErrorCode.KEY_REQUIRED)
    messages.audio("decoded", 1.5)
    messages.segment("silence", False)
    messages.final_acknowledged(0.2)
    sink.produced(Kind.FINAL)
    sink.produce_error(Kind.EVENT)
    sink.partial_shed()
    lane.map_ignored()
    lane.map_chars(3, 99)
    lane.rebalance("lost", 0)

    assert bench.of(metrics.messages_consumed, "chunks") == 1
    assert bench.of(metrics.messages_processed, "chunks", "ok") == 1
    assert bench.of(metrics.dead_letters, "key_required") == 1
    assert bench.of(metrics.audio_seconds, "decoded") == 1.5
    assert bench.of(metrics.segments, "silence") == 1
    assert bench.of(metrics.segments_without_text) == 1
    assert metrics.final_latency._sum.get() == 0.2
    assert bench.of(metrics.records_published, "final") == 1
    assert bench.of(metrics.produce_errors, "event") == 1
    assert bench.of(metrics.partials_shed) == 1
    assert bench.of(metrics.maps_ignored) == 1
    assert bench.of(metrics.map_chars, "chunks", "3") == 99
    assert bench.of(metrics.rebalances, "lost") == 1
    lane.forget(3)
    assert bench.of(metrics.map_chars, "chunks", "3") == 0  # a fresh child


def test_an_answer_that_comes_after_the_hand_over_brings_no_series_back(bench: Bench) -> None:
    lane = LaneMetrics(bench.metrics, "chunks")
    name, labels = (
        "oasr_worker_last_commit_timestamp_seconds",
        {"topic": "chunks", "partition": "3"},
    )
    lane.starts(3, 1)
    lane.commit(3, CommitResult.DONE.value)
    assert bench.registry.get_sample_value(name, labels)

    lane.forget(3)
    lane.commit(3, CommitResult.DONE.value)
    assert bench.registry.get_sample_value(name, labels) is None
    assert bench.of(bench.metrics.commits, "ok") == 2


def test_a_message_that_holds_its_partition_up_is_named_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.tracker.received(5)
    for _ in range(300):
        bench.clock.now += 1
        bench.gauges.update()

    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("chunks/3: no commit since 120 s, because the message at 5 is not")
    bench.tracker.done(5)
    bench.tracker.received(6)
    for _ in range(121):
        bench.clock.now += 1
        bench.gauges.update()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
