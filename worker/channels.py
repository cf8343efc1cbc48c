"""One channel of a session: its spans in order, and what a replay needs of it.

Everything that shapes a span starts afresh at its cut, so the channel can be rebuilt from its
resume sample: the cut up to which all spans are finished and their records acknowledged.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from oasr.audio.segmenter import Audio, Cut, EndReason, Opened, Segmenter, SegmenterConfig
from worker.media_clock import lies_in, overlap
from worker.records import Gap
from worker.segments import Segment, SegmentInfo
from worker.session_map import ChannelEntry, CutKind, PendingCut
from worker.spans import ChannelOwner, ForcedCut, PendingState, Skip, Span

Samples = NDArray[np.int16]


class Channel:
    """Runs gate, endpointer and requests of one channel, and settles its spans in order."""

    def __init__(self, entry: ChannelEntry, media_rate: int, owner: ChannelOwner) -> None:
        self.index = entry.channel
        self.media_rate = media_rate
        self.resume_sample = entry.resume_sample
        self.segment_index = entry.segment_index  # as of the resume sample, like the totals
        self.finals, self.last_text = entry.finals, ""  # of the last finished segment
        self.decoded_samples = entry.decoded_samples
        self.silence_samples = entry.silence_samples
        self.pending = entry.pending
        self.pending_state = PendingState.COMMITTED if entry.pending else None
        self.filled_samples = entry.filled_samples
        self.aborted_samples = self.aborted_filled_samples = 0
        self._owner = owner
        self._next_index = entry.segment_index
        self._spans: deque[Span] = deque()
        self._segment: Segment | None = None
        self._queue: deque[Samples | ForcedCut | Skip] = deque()
        self._gaps: deque[Gap] = deque()  # that end behind the resume sample
        self._span_start = entry.resume_sample  # of the span whose events are being taken
        self._segmenter = Segmenter(media_rate, entry.resume_sample, self._config_at)

    @property
    def position(self) -> int:
        """The next sample that the gate has not heard; queued audio lies behind it."""
        return self._segmenter.position

    @property
    def is_settled(self) -> bool:
        """Whether nothing is queued, pending or unfinished."""
        waits = self.pending is not None and not self.is_ended_by_pending
        return not self._queue and not self._spans and not waits

    @property
    def is_ended_by_pending(self) -> bool:
        """Whether a cut that ends the session has been applied here."""
        pending = self.pending
        return (
            pending is not None
            and pending.kind == "end"
            and self.pending_state is PendingState.APPLIED
        )

    @property
    def is_ending(self) -> bool:
        """Whether a cut that ends the session waits for its commit."""
        pending = self.pending
        return (
            pending is not None
            and pending.kind == "end"
            and self.pending_state is PendingState.PROPOSED
        )

    @property
    def has_open_audio(self) -> bool:
        """Whether audio was heard since the last cut."""
        return self._segmenter.position > self._segmenter.span_start

    @property
    def queued(self) -> deque[Samples | ForcedCut | Skip]:
        """What waits behind a pending cut."""
        return self._queue

    @property
    def open_segment(self) -> Segment | None:
        return self._segment

    @property
    def closed_segments(self) -> list[Segment]:
        """Segments that need something more than audio, in order."""
        return [span.segment for span in self._spans if span.segment is not None]

    def push(self, samples: Samples, start_sample: int) -> None:
        """Queue audio that begins at `start_sample`; what was heard already is skipped."""
        heard = self._end()
        if start_sample < heard:
            samples = samples[heard - start_sample :]
        if len(samples):
            self._queue.append(samples)

    def note_gap(self, gap: Gap) -> None:
        """Audio is missing there; what is put in its place follows by `push` or `skip`."""
        if gap.end_sample > self.resume_sample:
            self._gaps.append(gap)

    def skip(self, to_sample: int) -> None:
        """Queue a stretch in which nothing is heard; what is open ends before it."""
        if to_sample > self._end():
            self._queue.append(Skip(to_sample))

    def cut(self, reason: EndReason) -> int:
        """Queue a cut behind all audio so far; returns its sample."""
        self._queue.append(ForcedCut(reason))
        return self._end()

    @property
    def may_propose(self) -> bool:
        """Whether no other cut waits."""
        return self.pending is None and not self._queue

    def propose(self, kind: CutKind, reason: EndReason, last_offset: int) -> None:
        """Ask for a cut at the present end that a commit has to carry first."""
        self.pending = PendingCut(kind, reason.value, self.position, last_offset)
        self.pending_state = PendingState.PROPOSED

    def pending_committed(self, carried: PendingCut) -> None:
        """A commit that names this pending cut is acknowledged."""
        if self.pending is carried and self.pending_state is PendingState.PROPOSED:
            self.pending_state = PendingState.COMMITTED

    def pump(self) -> None:
        """Hear what is queued, as far as no pending cut stands in the way."""
        while (self.pending is None or self._apply_due_cut()) and self._queue:
            item = self._queue.popleft()
            if isinstance(item, np.ndarray):
                self._hear(item)
            elif isinstance(item, Skip):
                self._skip_to(item.to_sample)
            elif item.reason is None:
                self._give_up()
            else:
                self._take(self._segmenter.cut_at_end(item.reason))

    def settle(self) -> None:
        """Fold finished spans, in order, into the resume sample and the totals."""
        moved = False
        while self._spans and self._spans[0].finished:
            self._fold(self._spans.popleft())
            moved = True
        pending = self.pending
        if (
            pending is not None
            and pending.kind == "cut"  # the cut that ends a session stays until that is told
            and self.pending_state is PendingState.APPLIED
            and self.resume_sample >= pending.sample
        ):
            self.pending = self.pending_state = None
            moved = True
        if moved:
            self._owner.span_finished()

    def abort(self) -> None:
        """Queue an abort: what no cut has decided by then is given up."""
        self._queue.append(ForcedCut(None))

    def drop(self) -> None:
        """Leave the engine and forget all unfinished spans."""
        self._queue.clear()
        self._drop_segment()
        for span in self._spans:
            if span.segment is not None:
                span.segment.drop()
        self._spans.clear()

    def entry(self) -> ChannelEntry:
        """The channel as of its resume sample."""
        return ChannelEntry(
            channel=self.index,
            resume_sample=self.resume_sample,
            segment_index=self.segment_index,
            finals=self.finals,
            decoded_samples=self.decoded_samples,
            silence_samples=self.silence_samples,
            pending=self.pending,
            filled_samples=self.filled_samples,
        )

    def _end(self) -> int:
        """The sample behind all that is queued."""
        end = self._segmenter.position
        for item in self._queue:
            if isinstance(item, np.ndarray):
                end += len(item)
            elif isinstance(item, Skip):
                end = item.to_sample
        return end

    def _skip_to(self, sample: int) -> None:
        self._take(self._segmenter.cut_at_end(EndReason.SILENCE))
        self._spans.append(Span(sample, None))
        self._span_start = sample
        self._segmenter = Segmenter(self.media_rate, sample, self._config_at)
        self.settle()

    def _apply_due_cut(self) -> bool:
        """False while a proposed cut waits for its commit."""
        pending = self.pending
        if pending is None or self.pending_state is PendingState.APPLIED:
            return True
        if self.pending_state is PendingState.PROPOSED:
            return False
        if self._segmenter.position >= pending.sample:
            self.pending_state = PendingState.APPLIED
            self._take(self._segmenter.cut_at_end(EndReason(pending.reason)))
            self._owner.pending_applied(pending)
        return True

    def _hear(self, samples: Samples) -> None:
        pending = self.pending
        if pending is not None and self.pending_state is PendingState.COMMITTED:
            room = pending.sample - self._segmenter.position
            if room < len(samples):
                self._queue.appendleft(samples[room:])
                samples = samples[:room]
        self._take(self._segmenter.feed(samples))

    def _give_up(self) -> None:
        position = self._segmenter.position
        self.aborted_filled_samples = overlap(self._gaps, self._span_start, position)
        self.aborted_samples = position - self._span_start - self.aborted_filled_samples
        self._drop_segment()

    def _drop_segment(self) -> None:
        if self._segment is not None:
            self._segment.drop()
            self._segment = None

    def _take(self, events: list[Opened | Audio | Cut]) -> None:
        for event in events:
            if isinstance(event, Audio):
                assert self._segment is not None  # the segmenter opens before it sends audio
                self._segment.feed(event.samples)
                self._owner.heard(self._segment, event.samples)
            elif isinstance(event, Opened):
                self._open(event.start_sample)
            else:
                self._close(event)
        if self._spans or self.pending is not None:
            self.settle()

    def _open(self, start_sample: int) -> None:
        context = self._owner.context_at(self.index, self._span_start)
        info = SegmentInfo(
            channel=self.index,
            index=self._next_index,
            start_sample=start_sample,
            media_rate=self.media_rate,
            context=context,
            first_offset=self._owner.context_at(self.index, start_sample).offset,
        )
        self._next_index += 1
        self._segment = Segment(info, self._owner.speech, self._owner)
        self._owner.opened(self._segment)

    def _close(self, cut: Cut) -> None:
        segment, self._segment = self._segment, None
        self._span_start = cut.sample
        self._spans.append(Span(cut.sample, segment))
        if segment is not None:
            decided_by = self._owner.context_at(self.index, cut.decided_at - 1)
            gaps = tuple(g for g in self._gaps if lies_in(g, segment.info.start_sample, cut.sample))
            segment.close(cut.sample, cut.reason, decided_by.offset, decided_by.timestamp_ms, gaps)

    def _fold(self, span: Span) -> None:
        speech_from = span.end_sample
        if span.segment is not None:
            speech_from = span.segment.info.start_sample
            self.segment_index += 1
            self.finals += span.segment.published
            self.last_text = span.segment.text
        silence, decoded = speech_from - self.resume_sample, span.end_sample - speech_from
        if self._gaps:
            unheard = overlap(self._gaps, self.resume_sample, speech_from)
            unspoken = overlap(self._gaps, speech_from, span.end_sample)
            silence, decoded = silence - unheard, decoded - unspoken
            self.filled_samples += unheard + unspoken
        self.silence_samples += silence
        self.decoded_samples += decoded
        self._owner.count_audio(decoded / self.media_rate, silence / self.media_rate)
        self.resume_sample = span.end_sample
        while self._gaps and self._gaps[0].end_sample <= self.resume_sample:
            self._gaps.popleft()

    def _config_at(self, sample: int) -> SegmenterConfig:
        return self._owner.segmenter_config(self._owner.context_at(self.index, sample))
