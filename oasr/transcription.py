"""Recordings to transcripts: cuts every channel at silence and has the engine decode the pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oasr.audio.containers import read_blocks
from oasr.audio.resample import MODEL_RATE, Resampler
from oasr.audio.segmenter import Audio, Cut, EndReason, Event, Opened, Segmenter, SegmenterConfig
from oasr.decoding.options import DecodingOptions
from oasr.decoding.stability import stable_count
from oasr.decoding.words import Word as HeardWord
from oasr.engine.engine import ASREngine
from oasr.engine.request import Request, RequestOutput, Stretch
from oasr.errors import AudioError
from oasr.subtitles import Segment, Transcript, Word

FILE_SEGMENTS: Final = SegmenterConfig(max_utterance_ms=30_000)
# Of a model that finds pauses itself and reads windows of one price: as few as can be.
LONG_SEGMENTS: Final = SegmenterConfig(max_utterance_ms=120_000, min_silence_ms=5_000)
BLOCKS_PER_SECOND: Final = 10  # of a file that plays as a stream

Pcm = NDArray[np.int16]
Observer = Callable[[Transcript, Segment], None]
PartialObserver = Callable[[Transcript, Segment, int], None]  # and how many words are stable
STABLE: Final = 0.9  # the least stability of a word that counts as stable


@dataclass(slots=True)
class FileResult:
    """A transcript that grows; complete when all is read and nothing is pending."""

    transcript: Transcript
    pending: int = 0  # segments that the engine still has
    is_read: bool = False
    error: str | None = None  # why something of the file is missing

    @property
    def is_complete(self) -> bool:
        return self.is_read and not self.pending


@dataclass(slots=True)
class _Utterance:
    """One segment on its way through the engine; samples at the file's rate."""

    result: FileResult
    channel: int
    rate: int
    start_sample: int
    resampler: Resampler
    end_sample: int | None = None
    request_id: str | None = None  # of its stream
    audio: list[NDArray[np.float32]] = field(default_factory=list)

    def ms(self, sample: int) -> int:
        return sample * 1000 // self.rate

    def place(self, sample: int) -> int:
        """A sample at the model's rate since the begin, on the clock of the file."""
        return self.start_sample + sample * self.rate // MODEL_RATE

    def word(self, word: HeardWord, end_sample: int) -> Word:
        """A word on the clock of the file, inside the segment."""
        start, end = (
            min(self.place(edge), end_sample) for edge in (word.start_sample, word.end_sample)
        )
        return Word(word.text, self.ms(start), self.ms(end), round(word.confidence or 0.0, 4))


@dataclass(slots=True)
class _Channel:
    segmenter: Segmenter
    utterance: _Utterance | None = None


def _nobody(*_: object) -> None:
    """Observes nothing."""


class Transcriber:
    """Feeds files to an engine of its own, as whole segments or as streams."""

    def __init__(
        self,
        engine: ASREngine,
        stream: bool = False,
        on_partial: PartialObserver = _nobody,
        on_segment: Observer = _nobody,
        decoding: DecodingOptions | None = None,
    ) -> None:
        """OptionError for a `decoding` that the model cannot do."""
        self._engine = engine
        decoding = DecodingOptions(confidences=True) if decoding is None else decoding
        self._decoding = replace(decoding, stability=stream)
        engine.check_decoding(self._decoding)
        self._stream = stream
        self._on_partial = on_partial
        self._on_segment = on_segment
        self._open: dict[str, _Utterance] = {}
        # Enough for the scheduler to choose rows of like length from.
        self._most_pending = engine.config.max_batch_size * engine.config.length_window_factor

    def read(self, path: Path) -> FileResult:
        """Reads a file to its end; its last segments may still be pending.

        What can be decoded is decoded. A file that is bad, or breaks off, keeps what came before;
        `error` says why something is missing.
        """
        result = FileResult(Transcript(str(path), self._engine.model_info.name))
        channels: list[_Channel] = []
        try:
            self._read_blocks(path, result, channels)
        except (AudioError, OSError) as error:
            result.error = str(error)
        for number, channel in enumerate(channels):
            for event in channel.segmenter.cut_at_end(EndReason.END):
                self._apply(result, number, channel, event)
        result.is_read = True
        self._decode(self._most_pending)
        return result

    def _read_blocks(self, path: Path, result: FileResult, channels: list[_Channel]) -> None:
        transcript = result.transcript
        info, blocks = read_blocks(path)
        rate = info.sample_rate
        transcript.sample_rate, transcript.channels = rate, info.channels
        cuts = LONG_SEGMENTS if self._engine.capabilities.stretches else FILE_SEGMENTS
        channels += [_Channel(Segmenter(rate, 0, cuts)) for _ in range(info.channels)]
        samples = 0
        try:
            for block in blocks:
                samples += len(block)
                self._feed(result, rate, channels, block)
        finally:
            transcript.duration_ms = samples * 1000 // rate
            transcript.warnings.extend(info.warnings)

    def drain(self) -> None:
        """Decodes all that is pending."""
        while self._open:
            self._step()

    def _feed(self, result: FileResult, rate: int, channels: list[_Channel], block: Pcm) -> None:
        step = max(1, rate // BLOCKS_PER_SECOND) if self._stream else len(block)
        for start in range(0, len(block), step):
            for number, channel in enumerate(channels):
                samples = np.ascontiguousarray(block[start : start + step, number])
                for event in channel.segmenter.feed(samples):
                    self._apply(result, number, channel, event)
            self._decode(self._most_pending)

    def _apply(self, result: FileResult, number: int, channel: _Channel, event: Event) -> None:
        match event:
            case Opened(start_sample):
                rate = result.transcript.sample_rate
                utterance = _Utterance(result, number, rate, start_sample, Resampler(rate))
                channel.utterance = utterance
                result.pending += 1
                if self._stream:
                    utterance.request_id = self._engine.add_streaming_request(
                        decoding=self._decoding
                    )
                    self._open[utterance.request_id] = utterance
            case Audio(samples):
                assert channel.utterance is not None  # Audio follows Opened
                self._push(channel.utterance, channel.utterance.resampler.push(samples))
            case Cut(start_sample=int()):
                assert channel.utterance is not None
                self._end(channel.utterance, event)
                channel.utterance = None

    def _push(self, utterance: _Utterance, audio: NDArray[np.float32]) -> None:
        if utterance.request_id is None:
            utterance.audio.append(audio)
        elif utterance.request_id in self._open:
            self._engine.feed_chunk(utterance.request_id, audio)

    def _end(self, utterance: _Utterance, cut: Cut) -> None:
        utterance.end_sample = cut.sample
        keep_samples = None
        if cut.reason is EndReason.MAX_LENGTH:  # what is said beyond belongs to the next segment
            keep_samples = (cut.sample - utterance.start_sample) * MODEL_RATE // utterance.rate
        rest = utterance.resampler.flush()
        if utterance.request_id is None:
            audio = np.concatenate([*utterance.audio, rest])
            request = Request(audio, decoding=self._decoding)
            request.keep_samples = keep_samples
            utterance.audio.clear()
            self._open[self._engine.add_request(request)] = utterance
        elif utterance.request_id in self._open:
            self._engine.feed_chunk(utterance.request_id, rest, True, keep_samples)

    def _decode(self, most_pending: int) -> None:
        """Live audio at once; files as soon as more than `most_pending` segments wait."""
        while self._engine.has_work and (self._stream or len(self._open) > most_pending):
            self._step()

    def _step(self) -> None:
        for output in self._engine.step():
            utterance = self._open[output.request_id]
            if not output.finished:
                stable = stable_count(output.stability, STABLE)
                segment = self._segment(utterance, output)
                self._on_partial(utterance.result.transcript, segment, stable)
                continue
            del self._open[output.request_id]
            self._finish(utterance, output)

    def _finish(self, utterance: _Utterance, output: RequestOutput) -> None:
        result = utterance.result
        result.pending -= 1
        if output.finish_reason == "error":
            start_ms = utterance.ms(utterance.start_sample)
            result.error = (
                f"channel {utterance.channel} at {start_ms} ms: {output.error_stage} failed"
            )
        segments = [self._stretch(utterance, stretch) for stretch in output.stretches]
        for segment in segments or [self._segment(utterance, output)]:
            if segment.text:
                result.transcript.segments.append(segment)
                self._on_segment(result.transcript, segment)

    def _segment(self, utterance: _Utterance, output: RequestOutput) -> Segment:
        end_sample = utterance.end_sample
        if end_sample is None:
            end_sample = utterance.place(output.decoded_samples)
        return Segment(
            utterance.channel,
            utterance.ms(utterance.start_sample),
            utterance.ms(end_sample),
            output.text,
            round(output.confidence or 0.0, 4),
            tuple(utterance.word(word, end_sample) for word in output.words),
            tuple(reading.text for reading in output.nbest[1:]),
        )

    def _stretch(self, utterance: _Utterance, stretch: Stretch) -> Segment:
        end_sample = utterance.end_sample
        assert end_sample is not None  # whole utterances have stretches
        start, end = (
            min(utterance.place(edge), end_sample)
            for edge in (stretch.start_sample, stretch.end_sample)
        )
        return Segment(
            utterance.channel,
            utterance.ms(start),
            utterance.ms(end),
            stretch.text,
            round(stretch.confidence or 0.0, 4),
            tuple(utterance.word(word, end_sample) for word in stretch.words),
            evidence=stretch.evidence,
        )
