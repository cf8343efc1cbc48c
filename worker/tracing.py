"""Spans of segments and files, for those who follow a call through several services.

A span begins with the record that holds the first audio and ends when the last record of the work
is acknowledged; its parent is the `traceparent` of that first message. It is made at its end, so
nothing is kept meanwhile. OpenTelemetry (the extra `otel`) exports spans in a thread of its own
and drops them where nobody takes them: the loop never waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from oasr import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from worker.settings_tracing import Tracing

logger = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
MOST_WAITING: Final = 1_024  # spans; those that nobody takes hold the end of the process up


@dataclass(frozen=True, slots=True)
class Work:
    """A segment or a file whose last record is acknowledged; times since the epoch.

    The attributes say where it lies and how it ended, never what was said.
    """

    name: str
    traceparent: str | None
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]


def consumed(topic: str, partition: int, offset: int) -> dict[str, str | int]:
    """Where the first message lies."""
    return {
        "messaging.system": "kafka",
        "messaging.kafka.topic": topic,
        "messaging.kafka.partition": partition,
        "messaging.kafka.offset": offset,
    }


OnWork = Callable[[Work], None]


def as_log(work: Work) -> None:
    """One line for work that is done: a file's by INFO, that of a segment by DEBUG."""
    level = logging.INFO if work.name == "file" else logging.DEBUG
    if logger.isEnabledFor(level):
        said = {name.rpartition(".")[2]: value for name, value in work.attributes.items()}
        fields = {name: value for name, value in said.items() if name != "system"}
        if work.traceparent is not None:
            fields["trace_id"] = work.traceparent.split("-")[1]
        fields["duration_ms"] = max(0, work.end_ms - work.start_ms)
        logger.log(level, "a %s is done", work.name, extra={"fields": fields})


def is_installed() -> bool:
    """Whether this installation has the extra `otel`."""
    try:
        return all(map(find_spec, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")))
    except ModuleNotFoundError:  # of the namespace above
        return False


def make_tracer(settings: Tracing) -> Tracer | None:
    """Who makes spans of finished work; None where tracing is off."""
    if not settings.enabled:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    timeout_s = settings.timeout_ms / 1000
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=timeout_s)
    return Tracer(exporter, settings.sample_ratio)


class Tracer:
    """Makes spans of work and hands them to an exporter, which runs in a thread of its own."""

    def __init__(self, exporter: SpanExporter, sample_ratio: float) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(  # which exports what is left when the process ends
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            resource=Resource.create(
                {"service.name": "oasr-worker", "service.version": __version__}
            ),
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, MOST_WAITING))
        self._tracer = self._provider.get_tracer("oasr-worker", __version__)
        self._kind = SpanKind.CONSUMER
        self._propagator = TraceContextTextMapPropagator()

    def __call__(self, work: Work) -> None:
        """Export work as a span."""
        carrier = {} if work.traceparent is None else {"traceparent": work.traceparent}
        span = self._tracer.start_span(
            work.name,
            context=self._propagator.extract(carrier),
            kind=self._kind,
            attributes=dict(work.attributes),
            start_time=work.start_ms * _NS_PER_MS,
        )
        span.end(max(work.start_ms, work.end_ms) * _NS_PER_MS)

    def close(self) -> None:
        """Export what is left."""
        self._provider.shutdown()
