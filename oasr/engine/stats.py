"""What one step did, for whoever keeps metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepStats:
    """Counts of one step; durations in seconds."""

    streams: int = 0  # running streams that decoded something
    windows: int = 0  # streaming windows decoded
    forwards: int = 0  # model calls, retries left out
    offline_requests: int = 0
    offline_frames: int = 0  # feature frames of the offline batches
    offline_padded_frames: int = 0  # the same with what padding added
    admitted: int = 0
    finished: int = 0
    near_ties: int = 0  # of the finished, those that hang on a difference below 1e-3
    failed: int = 0
    aborted: int = 0
    running: int = 0  # streams that hold a slot after the step
    waiting: int = 0
    parked: int = 0  # streams that wait for audio without a slot
    kv_blocks_used: int = 0
    kv_blocks: int = 0
    kv_block_bytes: int = 0
    parked_bytes: int = 0  # of caches in host memory
    features_s: float = 0.0
    forward_s: float = 0.0
    step_s: float = 0.0
