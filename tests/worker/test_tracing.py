"""A segment or a file is one span below the caller's, and says where it lies, not what was said."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from tests.support.calls import chunk, control, spoken
from tests.support.files import FileBench, inline
from tests.support.partitions import Desk
from worker.codec import FileJob
from worker.counters import CommittedLatencies, MessageCounters
from worker.file_reader import Completed, Opening
from worker.file_run import FileRun
from worker.metrics import Metrics
from worker.options import SessionOptions
from worker.settings import SettingsError, load
from worker.settings_tracing import Tracing
from worker.tracing import Tracer, Work, is_installed, make_tracer

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
WORK = Work("segment", TRACEPARENT, 1_000, 3_500, {"oasr.session_id": "c", "oasr.channel": 1})


def spans(*works: Work, sample_ratio: float = 1.0):  # type: ignore[no-untyped-def]
    exporter = InMemorySpanExporter()
    tracer = Tracer(exporter, sample_ratio)
    for work in works:
        tracer(work)
    tracer.close()
    return exporter.get_finished_spans()


def test_work_is_a_span_below_that_of_its_message() -> None:
    (span,) = spans(WORK)

    assert (span.name, span.kind.name) == ("segment", "CONSUMER")
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == SPAN_ID
    assert (span.start_time, span.end_time) == (1_000_000_000, 3_500_000_000)
    assert dict(span.attributes) == {"oasr.session_id": "c", "oasr.channel": 1}
    assert span.resource.attributes["service.name"] == "oasr-worker"


def test_work_without_a_caller_begins_a_trace_and_a_clock_that_goes_wrong_ends_none_early() -> None:
    alone, late = spans(replace(WORK, traceparent=None), replace(WORK, end_ms=10))

    assert alone.parent is None
    assert alone.context.trace_id != int(TRACE_ID, 16)
    assert late.end_time == late.start_time


def test_the_caller_decides_on_sampling_and_the_ratio_on_what_has_none() -> None:
    unsampled = replace(WORK, traceparent=f"00-{TRACE_ID}-{SPAN_ID}-00")
    alone = replace(WORK, traceparent=None)

    assert spans(unsampled) == ()
    assert spans(alone, sample_ratio=0.0) == ()
    assert len(spans(WORK, sample_ratio=0.0)) == 1


class Receiver(BaseHTTPRequestHandler):
    """Takes what an OTLP exporter posts."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def receiver() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.taken = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_spans_go_to_a_collector_over_http(receiver: ThreadingHTTPServer) -> None:
    endpoint = f"http://127.0.0.1:{receiver.server_port}/v1/traces"
    tracer = make_tracer(Tracing(enabled=True, endpoint=endpoint))
    assert isinstance(tracer, Tracer)
    tracer(WORK)
    tracer.close()

    ((path, body),) = receiver.taken  # type: ignore[attr-defined]
    request = ExportTraceServiceRequest.FromString(body)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert path == "/v1/traces"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, SPAN_ID)
    assert span.end_time_unix_nano == 3_500_000_000


def test_a_collector_that_is_not_there_costs_the_spans_and_nothing_else() -> None:
    tracer = make_tracer(
        Tracing(enabled=True, endpoint="http://127.0.0.1:9/v1/traces", timeout_ms=100)
    )
    assert isinstance(tracer, Tracer)
    for _ in range(1_500):  # more than are kept for it
        tracer(WORK)
    tracer.close()


def test_it_is_off_unless_asked_for_and_refused_by_name_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert make_tracer(Tracing()) is None
    assert is_installed()
    monkeypatch.setenv("OASR_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
    monkeypatch.setenv("OASR_TRACING__ENABLED", "true")
    assert load().tracing.enabled

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "worker.tracing.find_spec", lambda name: None if "otlp" in name else found(name)
    )
    with pytest.raises(SettingsError, match=r"pip install 'oasr-worker\[otel\]'"):
        load()


def test_a_segment_s_work_runs_from_its_first_message_to_its_acknowledged_final() -> None:
    desk = Desk([])
    first = chunk("c", spoken(1.0), sequence=0, traceparent=TRACEPARENT)
    desk.arrive(
        replace(first, timestamp_ms=1_000),
        chunk("c", spoken(1.0), sequence=1, traceparent=TRACEPARENT.replace("b7", "c8")),
        control("c", "end", sequence=2),
    )
    desk.settle()

    (final,) = desk.transcripts()
    (work,) = desk.counts.works
    assert (work.name, work.traceparent, work.start_ms) == ("segment", TRACEPARENT, 1_000)
    assert work.end_ms >= work.start_ms
    assert work.attributes["oasr.session_id"] == "c"
    assert work.attributes["oasr.audio_ms"] == round((final["end"] - final["start"]) * 1000)
    assert work.attributes["messaging.kafka.offset"] == final["source"]["first_offset"]
    said = final["alternatives"][0]["transcript"]
    assert said
    assert said not in map(str, work.attributes.values())


def test_a_file_s_work_runs_from_its_message_to_its_acknowledged_event() -> None:
    bench = FileBench()
    items = iter([Opening(8000, 2), Completed(8000, ())])
    job = FileJob("mail", b"", None, options=SessionOptions(), traceparent=TRACEPARENT)
    reading = SimpleNamespace(job=job, take=lambda: next(items, None))
    run = FileRun(inline(7, b""), reading, bench.tools, lambda: None)  # type: ignore[arg-type]
    run.advance()
    assert bench.counts.works == []
    bench.outbox.acknowledge()

    (work,) = bench.counts.works
    assert (work.name, work.traceparent, work.start_ms) == ("file", TRACEPARENT, 1_000)
    assert work.attributes["oasr.session_id"] == "mail"
    assert work.attributes["messaging.kafka.offset"] == 7


def test_in_transactions_work_ends_when_its_records_are_visible() -> None:
    now = [10.0]
    plain = MessageCounters(Metrics(CollectorRegistry()))
    counters = CommittedLatencies(Metrics(CollectorRegistry()), lambda: now[0])
    told: list[Work] = []
    plain.on_work.append(told.append)
    counters.on_work.append(told.append)
    plain.worked(WORK)
    assert told == [WORK]

    counters.worked(WORK)
    now[0] += 2
    assert told == [WORK]
    counters.settled()
    counters.settled()
    assert told == [WORK, replace(WORK, end_ms=WORK.end_ms + 2_000)]
