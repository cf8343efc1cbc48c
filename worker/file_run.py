"""One file job in the loop: windows to the engine, finals in order, one completed event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from oasr.engine.request import RequestOutput
from worker import dead_letters, events, records
from worker.alternatives import Place, alternatives_of
from worker.cloudevents import Identity
from worker.codec import FileJob
from worker.dead_letters import Refusal
from worker.errors import ErrorCode
from worker.events import Cause, ChannelTotals, CompletedFile
from worker.file_map import Samples
from worker.file_progress import Progress
from worker.file_reader import Completed, Failed, Item, Opening, Reading, Window
from worker.messages import OutRecord, RawMessage
from worker.ports import Counters
from worker.publisher import role_of
from worker.recognizer import Recognizer

MAX_WINDOWS_IN_ENGINE = 16


class FileState(Enum):
    """READING takes windows; FINISHING has all that come; CLOSED has told how it went."""

    READING = auto()
    FINISHING = auto()
    CLOSED = auto()
    DROPPED = auto()


EDGES = {
    FileState.READING: {FileState.FINISHING, FileState.DROPPED},
    FileState.FINISHING: {FileState.CLOSED, FileState.DROPPED},
    FileState.CLOSED: set(),
    FileState.DROPPED: set(),
}


@dataclass(frozen=True, slots=True)
class FileTools:
    """What all file jobs share."""

    recognizer: Recognizer
    identity: Identity
    send: Callable[[OutRecord, Callable[[], None] | None], None]
    counters: Counters
    now_ms: Callable[[], int]
    emit_empty: bool


@dataclass(slots=True)
class _Pending:
    """A window whose text is awaited, or whose turn has not come."""

    window: Window
    request_id: str | None = None
    output: RequestOutput | None = None


@dataclass(slots=True)
class _Totals:
    segments: int = 0
    finals: int = 0
    decoded: int = 0


class FileRun:
    """Follows one job from its message to its last acknowledgement."""

    def __init__(
        self,
        raw: RawMessage,
        reading: Reading,
        tools: FileTools,
        on_done: Callable[[], None],
        published: Samples = (),
    ) -> None:
        """`published` is how far a former owner came, by channel: that is not published again."""
        self.raw = raw
        self.state = FileState.READING
        self._reading = reading
        self._tools = tools
        self._on_done = on_done
        self._opening = Opening(0, 0)
        self._outcome: Completed | Failed | None = None
        self._windows: list[_Pending] = []  # in the order of publication
        self._totals: dict[int, _Totals] = {}
        self._progress = {channel: Progress(far) for channel, far in enumerate(published)}
        self._warnings: list[str] = list(reading.job.options.warnings)
        self._unacknowledged = 0

    @property
    def job(self) -> FileJob:
        return self._reading.job

    @property
    def published(self) -> Samples:
        """Up to which sample of each channel the segments are on the topic, in order."""
        return tuple(progress.samples for _, progress in sorted(self._progress.items()))

    @property
    def is_open(self) -> bool:
        """Whether windows are still read, decoded or acknowledged."""
        return self.state in (FileState.READING, FileState.FINISHING)

    def move_to(self, state: FileState) -> None:
        """The only writer of `state`; raises RuntimeError on an edge that is not in the table."""
        if state not in EDGES[self.state]:
            raise RuntimeError(f"file: {self.state} -> {state}")
        self.state = state

    def advance(self) -> None:
        """Take what the reader has ready, as far as the engine has room for it."""
        while self.state is FileState.READING and len(self._windows) < MAX_WINDOWS_IN_ENGINE:
            item = self._reading.take()
            if item is None:
                return
            self._take(item)

    def drop(self) -> None:
        """Hand-over: leave the engine and publish nothing more."""
        self._reading.cancel()
        self._leave_engine()
        if self.is_open:
            self.move_to(FileState.DROPPED)

    def _take(self, item: Item) -> None:
        if isinstance(item, Opening):
            self._opening = item
            self._totals = {channel: _Totals() for channel in range(item.channels)}
            for channel in range(item.channels):
                self._progress.setdefault(channel, Progress(0))
        elif isinstance(item, Window):
            self._recognize(item)
        else:
            if isinstance(item, Completed):
                self._warnings += item.warnings
            else:
                self._leave_engine()  # the finals that are published stay, the rest never comes
            self._outcome = item
            self.move_to(FileState.FINISHING)
            self._publish_ready()

    def _recognize(self, window: Window) -> None:
        pending = _Pending(window)
        self._windows.append(pending)

        def decoded(output: RequestOutput) -> None:
            pending.output = output
            self._publish_ready()

        pending.request_id = self._tools.recognizer.transcribe(
            window.audio, self.job.priority, self.job.options.decoding, decoded
        )

    def _publish_ready(self) -> None:
        """Publish the windows whose turn has come; close the job after the last is safe."""
        while self._windows and self._windows[0].output is not None:
            pending = self._windows.pop(0)
            assert pending.output is not None
            self._publish(pending.window, pending.output)
        if self.state is FileState.FINISHING and not self._windows and not self._unacknowledged:
            self._close()

    def _publish(self, window: Window, output: RequestOutput) -> None:
        totals = self._totals[window.channel]
        totals.segments += 1
        totals.decoded += window.end_sample - window.start_sample
        rate = self._opening.sample_rate
        self._tools.counters.audio("decoded", (window.end_sample - window.start_sample) / rate)
        self._tools.counters.segment("window", bool(output.text))
        warnings: tuple[str, ...] = ()
        if output.finish_reason != "stop":
            warnings = (ErrorCode.ENGINE_FAILED.value,)
            self._note(ErrorCode.ENGINE_FAILED.value)
        emit_empty = self.job.options.emit_empty
        emit_empty = self._tools.emit_empty if emit_empty is None else emit_empty
        progress = self._progress[window.channel]
        progress.begin(window.end_sample)
        if not output.text and not warnings and not emit_empty:
            progress.safe(window.end_sample)
            return
        totals.finals += 1
        if progress.was_published(window.end_sample):
            progress.safe(window.end_sample)
            return
        self._unacknowledged += 1
        alternatives = alternatives_of(output, Place(window.start_sample, window.end_sample, rate))
        hypothesis = records.Hypothesis(
            alternatives, window.end_sample - window.start_sample, "window"
        )
        record = records.transcript(
            self._tools.identity,
            self._described(window, warnings),
            hypothesis,
            self._latency(),
            self._tools.now_ms(),
        )
        self._tools.send(record, lambda: self._acknowledged(window))

    def _acknowledged(self, window: Window) -> None:
        self._progress[window.channel].safe(window.end_sample)
        self._unacknowledged -= 1
        self._publish_ready()

    def _close(self) -> None:
        outcome = self._outcome
        self.move_to(FileState.CLOSED)
        if isinstance(outcome, Completed):
            self._complete(outcome)
        elif outcome is not None:
            self._refuse(outcome)

    def _complete(self, completed: Completed) -> None:
        duration = completed.duration_samples
        for totals in self._totals.values():
            silence = duration - totals.decoded
            self._tools.counters.audio("silence", silence / self._opening.sample_rate)
        file = CompletedFile(
            file_id=self.job.file_id,
            origin=self._origin,
            sample_rate=self._opening.sample_rate,
            duration_samples=duration,
            totals=tuple(self._channel(channel, duration) for channel in self._totals),
            warnings=tuple(self._warnings),
            traceparent=self.job.traceparent,
        )
        record = events.file_completed(
            self._tools.identity, file, self._cause, self._tools.now_ms()
        )
        self._tools.send(record, self._on_done)

    def _refuse(self, failed: Failed) -> None:
        self._tools.counters.dead_letter(failed.code)
        refusal = Refusal(failed.code, failed.message, "file")
        self._tools.send(dead_letters.build(self.raw, refusal, self._tools.now_ms()), self._on_done)

    def _leave_engine(self) -> None:
        for pending in self._windows:
            if pending.request_id is not None:
                self._tools.recognizer.drop(pending.request_id)
        self._windows.clear()

    def _note(self, code: str) -> None:
        if code not in self._warnings:
            self._warnings.append(code)

    @property
    def _origin(self) -> str:
        return f"{self.raw.partition}-{self.raw.offset}"

    @property
    def _cause(self) -> Cause:
        return Cause(self.raw.topic, self.raw.partition, self.raw.offset)

    def _channel(self, channel: int, duration: int) -> ChannelTotals:
        totals = self._totals[channel]
        return ChannelTotals(
            channel=channel,
            role=role_of(self.job.roles, channel),
            finals=totals.finals,
            received=duration,
            decoded=totals.decoded,
            silence=duration - totals.decoded,
        )

    def _described(self, window: Window, warnings: tuple[str, ...]) -> records.Segment:
        raw = self.raw
        return records.Segment(
            session_id=self.job.file_id,
            origin=self._origin,
            channel=window.channel,
            channels=self._opening.channels,
            role=role_of(self.job.roles, window.channel),
            segment_index=window.index,
            start_sample=window.start_sample,
            end_sample=window.end_sample,
            sample_rate=self._opening.sample_rate,
            source=records.Source(raw.topic, raw.partition, raw.offset, raw.offset),
            warnings=warnings,
            traceparent=self.job.traceparent,
        )

    def _latency(self) -> dict[str, int]:
        sent_ms = self.raw.timestamp_ms
        return {"final": max(0, self._tools.now_ms() - sent_ms)} if sent_ms else {}
