"""Whether the sample rate that messages declare fits the media times that they state.

Only what producers state is compared: media time against samples, never the time of arrival, so
that uploads faster than real time are no matter, and a replay comes to the same verdict. Stretches
of a tenth of a second, which leave out where numbers are missing, are judged by their median, so
that pauses and jitter, which concern some of them, change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from worker.streams import MediaFormat, Received

LEAST_STRETCHES: Final = 20
_STRETCHES_A_SECOND: Final = 10
_TOLERANCE: Final = 16  # a sixteenth; 44.1 kHz and 48 kHz are a twelfth apart


def is_suspect(
    messages: Iterable[Received], start_sample: int, end_sample: int, media: MediaFormat
) -> bool:
    """Whether messages with audio of `start_sample` to `end_sample` state another rate's times."""
    within = [
        received
        for received in messages
        if received.start_sample < end_sample and start_sample < received.hold_until
    ]
    found = sorted(
        elapsed_ms * media.byte_rate / (audio_bytes * 1000)
        for elapsed_ms, audio_bytes in _stretches(within, media.byte_rate // _STRETCHES_A_SECOND)
    )
    if len(found) < LEAST_STRETCHES:
        return False
    median = found[len(found) // 2]
    return not 1 - 1 / _TOLERANCE <= median <= 1 + 1 / _TOLERANCE


def _stretches(messages: list[Received], least_bytes: int) -> Iterator[tuple[int, int]]:
    """Media time and bytes of runs of messages; where messages lack between two, time is left out.

    A message's own number is known from what was expected after it.
    """
    elapsed_ms = taken = 0
    for received, following, third in zip(messages, messages[1:], messages[2:], strict=False):
        begin_ms, end_ms = received.context.position_ms, following.context.position_ms
        expected, afterwards = following.expected_sequence, third.expected_sequence
        if begin_ms is None or end_ms is None or expected is None or afterwards != expected + 1:
            continue
        elapsed_ms += end_ms - begin_ms
        taken += received.context.audio_bytes
        if taken and taken >= least_bytes:
            yield elapsed_ms, taken
            elapsed_ms = taken = 0
