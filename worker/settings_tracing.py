"""The group `tracing` of `worker.settings`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from worker.settings_groups import Group
from worker.tracing import is_installed


class Tracing(Group):
    """Spans of segments and files for OpenTelemetry."""

    enabled: bool = False
    """Export a span for each segment and file. Needs the extra `otel`."""
    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")] = (
        "http://127.0.0.1:4318/v1/traces"
    )
    """Where spans go, by OTLP over HTTP."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the spans that is exported where the message's `traceparent` does not decide."""
    timeout_ms: PositiveInt = 2_000
    """Longest export; spans that are not taken by then are dropped."""

    @model_validator(mode="after")
    def _installed(self) -> Tracing:
        if self.enabled and not is_installed():
            raise ValueError("tracing is not installed: pip install 'oasr-worker[otel]'")
        return self
