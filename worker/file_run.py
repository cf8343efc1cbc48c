"""One file job in the loop: windows to the engine, finals in order, one completed event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from oasr.engine.request import RequestOutput
from worker.cloudevents import Identity
from worker.codec import FileJob
from worker.dead_letters import Refusal
from worker.engine_process import CRASHED, MOST_DEATHS
from worker.errors import ErrorCode
from worker.file_map import Samples
from worker.file_progress import Progress
from worker.file_reader import Completed, Failed, Item, Opening, Reading, Window
from worker.file_records import FileRecords, Totals
from worker.messages import OutRecord, RawMessage
from worker.ports import Counters
from worker.recognizer import Recognizer
from worker.tracing import Work, consumed

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


Send = Callable[[OutRecord, Callable[[], None] | None], None]


@dataclass(frozen=True, slots=True)
class FileTools:
    """What all file jobs share."""

    recognizer: Recognizer
    identity: Identity
    send: Send
    counters: Counters
    now_ms: Callable[[], int]
    emit_empty: bool


@dataclass(slots=True)
class _Pending:
    """A window whose text is awaited, or whose turn has not come."""

    window: Window
    request_id: str | None = None
    output: RequestOutput | None = None


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
        self._records = FileRecords(tools.identity, raw, reading.job, tools.now_ms)
        self._opening = Opening(0, 0)
        self._outcome: Completed | Failed | None = None
        self._windows: list[_Pending] = []  # in the order of publication
        self._totals: dict[int, Totals] = {}
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
    def published_s(self) -> float:
        """Up to which second of the recording all channels are on the topic."""
        rate = self._opening.sample_rate
        return min(self.published, default=0) / rate if rate else 0.0

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
            self._totals = {channel: Totals() for channel in range(item.channels)}
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

        options = self.job.options
        pending.request_id = self._tools.recognizer.transcribe(
            window.audio, self.job.priority, options.decoding, decoded, options.tenant
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
            crashed = output.error_stage == CRASHED
            code = ErrorCode.CRASHED_WORKER if crashed else ErrorCode.ENGINE_FAILED
            warnings = (code.value,)
            self._note(code.value)
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
        record = self._records.final(self._opening, window, output, warnings)
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
        record = self._records.completed(
            self._opening, duration, self._totals, tuple(self._warnings)
        )
        if ErrorCode.CRASHED_WORKER.value in self._warnings:
            reason = f"decoding a window of the file ended a process {MOST_DEATHS} times"
            refusal = Refusal(ErrorCode.CRASHED_WORKER, reason, "engine", MOST_DEATHS)
            self._dead_letter(refusal, lambda: self._tools.send(record, self._told))
        else:
            self._tools.send(record, self._told)

    def _told(self) -> None:
        raw, now_ms = self.raw, self._tools.now_ms()
        attributes = {
            **consumed(raw.topic, raw.partition, raw.offset),
            "oasr.session_id": self.job.file_id,
            "oasr.channels": len(self._totals),
        }
        start_ms = raw.timestamp_ms or now_ms
        work = Work("file", self.job.traceparent, start_ms, now_ms, attributes)
        self._tools.counters.worked(work)
        self._on_done()

    def _refuse(self, failed: Failed) -> None:
        self._dead_letter(Refusal(failed.code, failed.message, "file"), self._on_done)

    def _dead_letter(self, refusal: Refusal, on_ack: Callable[[], None]) -> None:
        self._tools.counters.dead_letter(refusal.code)
        self._tools.send(self._records.refused(refusal), on_ack)

    def _leave_engine(self) -> None:
        for pending in self._windows:
            if pending.request_id is not None:
                self._tools.recognizer.drop(pending.request_id)
        self._windows.clear()

    def _note(self, code: str) -> None:
        if code not in self._warnings:
            self._warnings.append(code)
