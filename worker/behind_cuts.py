"""Audio that waits for a commit: behind a cut, or behind an end, that is not committed yet.

The engine does not see it, so the backpressure by what the engine could decode does not either.
Brokers that lead partitions may go on sending while the one that takes commits is away.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from worker.channels import Channel
from worker.messages import RawMessage
from worker.partition import Partition

LEAST_S = 0.02  # as which a message counts at least, however little audio it has
FEWEST_BYTES_PER_S = 8000  # of audio that no session has decoded


def waiting_s(partition: Partition) -> float:
    """Seconds of audio that the partition has read and can do nothing with before a commit."""
    sessions = partition.sessions.all()
    channels = (c for s in sessions for c in s.channels.values() if c.pending is not None)
    return sum(map(_queued_s, channels)) + _held_s(raw for raw, _ in partition.held)


def _queued_s(channel: Channel) -> float:
    lengths = (len(item) if isinstance(item, np.ndarray) else 0 for item in channel.queued)
    return sum(max(LEAST_S, samples / channel.media_rate) for samples in lengths)


def _held_s(messages: Iterable[RawMessage]) -> float:
    return sum(max(LEAST_S, len(raw.value or b"") / FEWEST_BYTES_PER_S) for raw in messages)
