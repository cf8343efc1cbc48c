"""Builds the records of a file job from what its run knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oasr.engine.request import RequestOutput
from worker import dead_letters, events, records
from worker.alternatives import Place, alternatives_of
from worker.cloudevents import Identity
from worker.codec import FileJob
from worker.dead_letters import Refusal
from worker.events import Cause, ChannelTotals, CompletedFile
from worker.file_reader import Opening, Window
from worker.messages import OutRecord, RawMessage
from worker.publisher import role_of


@dataclass(slots=True)
class Totals:
    """What became of a channel so far; `decoded` counts media samples."""

    segments: int = 0
    finals: int = 0
    decoded: int = 0


@dataclass(frozen=True, slots=True)
class FileRecords:
    """The records of one job; `now_ms` is wall-clock time since the epoch."""

    identity: Identity
    raw: RawMessage
    job: FileJob
    now_ms: Callable[[], int]

    def final(
        self, opening: Opening, window: Window, output: RequestOutput, warnings: tuple[str, ...]
    ) -> OutRecord:
        """What a window says."""
        place = Place(window.start_sample, window.end_sample, opening.sample_rate)
        hypothesis = records.Hypothesis(
            alternatives_of(output, place), window.end_sample - window.start_sample, "window"
        )
        now_ms, sent_ms = self.now_ms(), self.raw.timestamp_ms
        latency_ms = {"final": max(0, now_ms - sent_ms)} if sent_ms else {}
        described = self._described(opening, window, warnings)
        return records.transcript(self.identity, described, hypothesis, latency_ms, now_ms)

    def completed(
        self,
        opening: Opening,
        duration_samples: int,
        totals: Mapping[int, Totals],
        warnings: tuple[str, ...],
    ) -> OutRecord:
        """All windows are told."""
        file = CompletedFile(
            file_id=self.job.file_id,
            origin=self._origin,
            sample_rate=opening.sample_rate,
            duration_samples=duration_samples,
            totals=tuple(
                self._channel(channel, totals[channel], duration_samples) for channel in totals
            ),
            warnings=warnings,
            traceparent=self.job.traceparent,
            model=self.job.options.model,
        )
        cause = Cause(self.raw.topic, self.raw.partition, self.raw.offset)
        return events.file_completed(self.identity, file, cause, self.now_ms())

    def refused(self, refusal: Refusal) -> OutRecord:
        """The dead letter of the job."""
        return dead_letters.build(self.raw, refusal, self.now_ms())

    @property
    def _origin(self) -> str:
        return f"{self.raw.partition}-{self.raw.offset}"

    def _channel(self, channel: int, totals: Totals, duration_samples: int) -> ChannelTotals:
        return ChannelTotals(
            channel=channel,
            role=role_of(self.job.roles, channel),
            finals=totals.finals,
            received=duration_samples,
            decoded=totals.decoded,
            silence=duration_samples - totals.decoded,
        )

    def _described(
        self, opening: Opening, window: Window, warnings: tuple[str, ...]
    ) -> records.Segment:
        raw = self.raw
        return records.Segment(
            session_id=self.job.file_id,
            origin=self._origin,
            channel=window.channel,
            channels=opening.channels,
            role=role_of(self.job.roles, window.channel),
            segment_index=window.index,
            start_sample=window.start_sample,
            end_sample=window.end_sample,
            sample_rate=opening.sample_rate,
            source=records.Source(raw.topic, raw.partition, raw.offset, raw.offset),
            warnings=warnings,
            traceparent=self.job.traceparent,
            model=self.job.options.model,
        )
