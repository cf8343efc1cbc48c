"""CPU time of everything between a polled message and the engine; prints one JSON line.

    python benchmarks/front.py --calls 16

The bundled stereo µ-law calls come to one partition in interleaved chunks of 100 ms: codec,
session, gate, resampler, tracker, metrics, and for every second of audio the map of a commit.
Records are built and acknowledged at once; the engine is stubbed: segments say nothing. In CPU
microseconds a message of two channels, medians of alternating rounds:

- `front_us`: all of it;
- `plumbing_us`: the same messages without the audio work, which is decoding µ-law, the gate and
  the resampler; spans are cut every 1.7 s, so messages are held and released all the same;
- `audio_us`: the difference.

What librdkafka does is not in it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from oasr.audio import g711
from oasr.audio.containers import read_blocks
from oasr.audio.segmenter import Cut, EndReason, SegmenterConfig
from oasr.engine.request import RequestOutput
from worker.admission import Admission
from worker.cloudevents import Identity, ModelName
from worker.codec import ChunkDefaults
from worker.counters import MessageCounters
from worker.messages import OutRecord, RawMessage
from worker.metadata import Place
from worker.metrics import Metrics, Registry
from worker.partition import Partition, Surroundings
from worker.ports import Limits
from worker.publisher import Publisher
from worker.segments import Segment

CALLS = Path(__file__).parents[1] / "worker/assets/calls"
RATE = 8_000
CHUNK_SAMPLES = RATE // 10
SPAN_SAMPLES, HEARD_SAMPLES = 13_600, 16_000
SILENCE = np.zeros(2 * CHUNK_SAMPLES, np.int16)
BAR_US = 25


class DeafSegmenter:
    """Hears nothing, and cuts its spans as if it did: the plumbing's share of the work."""

    def __init__(self, rate: int, start_sample: int, config: object) -> None:
        del rate, config
        self.position = self.span_start = start_sample

    def feed(self, samples: NDArray[np.int16]) -> list[Cut]:
        self.position += len(samples)
        if self.position - self.span_start < HEARD_SAMPLES:
            return []
        self.span_start += SPAN_SAMPLES
        return [Cut(self.span_start, EndReason.NO_SPEECH, None, self.position)]

    def cut_at_end(self, reason: EndReason) -> list[Cut]:
        self.span_start = self.position
        return [Cut(self.position, reason, None, self.position)]


class MuteSpeech:
    """Takes all audio and understands nothing of it."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._finished: list[str] = []

    def open(self, segment: Segment, priority: int) -> str:
        del priority
        name = str(id(segment))
        self._segments[name] = segment
        return name

    def feed(
        self, request_id: str, samples: NDArray[np.float32], keep_samples: int | None, last: bool
    ) -> None:
        del samples, keep_samples
        if last:
            self._finished.append(request_id)

    def drop(self, request_id: str) -> None:
        self._segments.pop(request_id, None)

    def step(self) -> None:
        for name in self._finished:
            output = RequestOutput(name, "", finished=True, finish_reason="stop")
            self._segments.pop(name).receive(output)
        self._finished.clear()


class PromptOutbox:
    """A broker that has every record at once."""

    def send(self, record: OutRecord, on_ack: Callable[[], None] | None) -> None:
        del record
        if on_ack is not None:
            on_ack()


def call_messages(calls: int) -> list[RawMessage]:
    """The calls side by side, chunk after chunk, each from a place of its own."""
    tracks = []
    for path in sorted(CALLS.glob("*.wav")):
        _, blocks = read_blocks(path)
        tracks.append(np.concatenate(list(blocks)))
    shortest = min(len(track) for track in tracks) // CHUNK_SAMPLES
    messages = []
    for number in range(shortest):
        for call in range(calls):
            track = np.roll(tracks[call % len(tracks)], call * 7919, axis=0)
            chunk = track[number * CHUNK_SAMPLES : (number + 1) * CHUNK_SAMPLES]
            headers = {
                "encoding": "mulaw",
                "sample_rate": RATE,
                "channels": 2,
                "roles": "agent,customer",
                "sequence": number,
            }
            messages.append(
                RawMessage(
                    topic="chunks",
                    partition=0,
                    offset=len(messages),
                    timestamp_ms=1,
                    key=f"call-{call}".encode(),
                    value=g711.linear_to_mulaw(chunk.reshape(-1)),
                    headers=tuple((name, str(v).encode()) for name, v in headers.items()),
                )
            )
    return messages


def new_partition(speech: MuteSpeech) -> Partition:
    surroundings = Surroundings(
        topic="chunks",
        speech=lambda _number: speech,
        records=Publisher(Identity("group", ModelName("m", "d")), lambda: 1),
        outbox=PromptOutbox(),
        counters=MessageCounters(Metrics(Registry())),
        now=time.monotonic,
        now_ms=lambda: 1,
        defaults=ChunkDefaults(),
        limits=Limits(),
        endpointing=SegmenterConfig(),
        admission=Admission(("en",)),
    )
    return Partition(Place("topic-id", 0, 0), surroundings)


def play(messages: list[RawMessage], calls: int) -> float:
    """CPU microseconds a message."""
    speech = MuteSpeech()
    partition = new_partition(speech)
    started_s = time.process_time()
    for number, raw in enumerate(messages, 1):
        partition.receive(raw)
        if number % calls == 0:
            speech.step()
        if number % (10 * calls) == 0:
            partition.tick()
            partition.prepare_commit().on_done()
    cpu_s = time.process_time() - started_s
    assert partition.tracker.watermark > 0
    return cpu_s / len(messages) * 1e6


def play_deaf(messages: list[RawMessage], calls: int) -> float:
    """CPU microseconds a message when no audio is looked at."""
    with ExitStack() as patches:
        patches.enter_context(patch("worker.channels.Segmenter", DeafSegmenter))
        patches.enter_context(
            patch("worker.streams.pcm.decode", lambda data, _encoding: SILENCE[: len(data)])
        )
        return play(messages, calls)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", choices=("front", "plumbing"))
    options = parser.parse_args()
    messages = call_messages(options.calls)
    if options.profile:
        profile = cProfile.Profile()
        runner = play if options.profile == "front" else play_deaf
        profile.runcall(runner, messages, options.calls)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return
    rounds = [
        (play(messages, options.calls), play_deaf(messages, options.calls))
        for _ in range(options.rounds)
    ]
    front_us, plumbing_us = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        json.dumps(
            {
                "benchmark": "front",
                "calls": options.calls,
                "messages": len(messages),
                "front_us": round(front_us, 1),
                "plumbing_us": round(plumbing_us, 1),
                "audio_us": round(front_us - plumbing_us, 1),
                "plumbing_best_us": round(min(plumbing for _, plumbing in rounds), 1),
                "plumbing_bar_us": BAR_US,
            }
        )
    )


if __name__ == "__main__":
    main()
