"""What a segmenter said, collected; and the same rules worked out naively on a whole signal."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from oasr.audio.segmenter import Audio, Cut, EndReason, Event, Opened, Segmenter, SegmenterConfig

Int16Array = npt.NDArray[np.int16]


@dataclass
class Heard:
    """Opened and Cut events in order, and each segment's audio joined, by its start."""

    marks: list[Opened | Cut] = field(default_factory=list)
    audio: dict[int, Int16Array] = field(default_factory=dict)

    def take(self, events: list[Event]) -> None:
        """Append events, checking that they alternate as a consumer may rely on."""
        for event in events:
            opened = self.marks[-1] if self.marks else None
            if isinstance(event, Audio):
                assert isinstance(opened, Opened)
                assert len(event.samples)
                so_far = self.audio[opened.start_sample]
                self.audio[opened.start_sample] = np.concatenate([so_far, event.samples])
                continue
            if isinstance(event, Opened):
                assert not isinstance(opened, Opened)
                self.audio[event.start_sample] = np.zeros(0, np.int16)
            else:
                start = opened.start_sample if isinstance(opened, Opened) else None
                assert event.start_sample == start
            self.marks.append(event)

    @property
    def cuts(self) -> list[Cut]:
        """All cuts."""
        return [mark for mark in self.marks if isinstance(mark, Cut)]

    @property
    def segments(self) -> list[tuple[int, int]]:
        """(start, cut) of every segment that has ended."""
        return [(cut.start_sample, cut.sample) for cut in self.cuts if cut.start_sample is not None]


def hear(
    samples: Int16Array,
    rate: int = 8000,
    config: SegmenterConfig | None = None,
    sizes: tuple[int, ...] = (),
    end: EndReason | None = EndReason.END,
    start_sample: int = 0,
) -> Heard:
    """Feed pieces of `sizes`, then the rest at once, then end the span unless `end` is None."""
    segmenter = Segmenter(rate, start_sample, config or SegmenterConfig())
    heard = Heard()
    begin = 0
    for size in (*sizes, len(samples)):
        heard.take(segmenter.feed(samples[begin : begin + size]))
        begin = min(begin + size, len(samples))
    assert segmenter.position == start_sample + len(samples)
    if end is not None:
        heard.take(segmenter.cut_at_end(end))
    return heard


def naive_cuts(samples: Int16Array, rate: int, config: SegmenterConfig) -> list[Cut]:
    """All cuts that the audio decides, frame by frame from the written rules, in plain integers."""
    cuts: list[Cut] = []
    start = 0
    while (cut := _naive_span(samples, start, rate // 100, config)) is not None:
        cuts.append(cut)
        start = cut.sample
    return cuts


def _naive_span(samples: Int16Array, start: int, size: int, config: SegmenterConfig) -> Cut | None:
    """The cut that ends the span which begins at `start`."""
    energies: list[int] = []
    above: list[bool] = []
    segment: int | None = None
    silent = 0
    for end in range(start + size, len(samples) + 1, size):
        frame = [int(value) for value in samples[end - size : end]]
        energies.append(size * sum(v * v for v in frame) - sum(frame) ** 2)
        # Three times the floor, to stay in integers.
        floor3 = _naive_floor3(energies, config.quiet_search_ms // 10, size)
        above.append(energies[-1] > 4 * floor3 // 3)
        if segment is None:
            loud = [energy > 8 * floor3 // 3 for energy in energies]
            if loud[-1] and sum(loud[-10:]) >= 4:
                onset = len(loud) - 1
                while any(loud[max(0, onset - 30) : onset]):
                    onset -= 1
                    while not loud[onset]:
                        onset -= 1
                segment = max(start, start + (onset - config.pre_roll_ms // 10) * size)
            elif len(energies) == config.no_speech_ms // 10:
                sample = end - config.pre_roll_ms // 10 * size
                return Cut(sample, EndReason.NO_SPEECH, None, end)
            continue
        silent = 0 if sum(above[-5:]) >= 3 else silent + 1
        if silent == config.min_silence_ms // 10:
            sample = end - min(config.pre_roll_ms, config.min_silence_ms) // 10 * size
            return Cut(sample, EndReason.SILENCE, segment, end)
        if end - segment == config.max_utterance_ms // 10 * size:
            window = energies[-config.quiet_search_ms // 10 :]
            frames_back = len(window) - _naive_rest(window, 4 * floor3 // 3)
            return Cut(end - frames_back * size, EndReason.MAX_LENGTH, segment, end)
    return None


def _naive_floor3(energies: list[int], memory: int, size: int) -> int:
    sums = [sum(energies[i : i + 3]) for i in range(len(energies) - 2)][-memory:]
    lowest, highest = 3 * size * size * 32**2, 3 * size * size * 519**2
    return min(max(min(sums, default=highest), lowest), highest)


def _naive_rest(window: list[int], quiet_to: int) -> int:
    best, begin = (0, 0), 0
    for index in range(len(window) + 1):
        if index == len(window) or window[index] > quiet_to:
            if index - begin >= best[0] and index > begin:
                best = (index - begin, index)
            begin = index + 1
    length, end = best
    return end - min(length // 2, 10) if length else window.index(min(window))
