"""Configuration of the engine: one frozen value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

SchedulePolicy = Literal["fcfs", "window", "bucket", "sjf"]
Dtype = Literal["float32", "float16", "bfloat16", "int8"]

POLICIES: Final[tuple[str, ...]] = get_args(SchedulePolicy)
DTYPES: Final[tuple[str, ...]] = get_args(Dtype)


@dataclass(frozen=True)
class EngineConfig:
    """Everything the engine and its scheduler can be told; ValueError names a bad field.

    Frames are 10 ms feature frames in `max_batch_frames` and encoder frames in `chunk_size` and
    `block_size_frames`; one of these is as many feature frames as the model subsamples to one,
    most often 4. Times are seconds unless the name says otherwise.
    """

    ckpt_dir: str | Path | None = None  # None: the bundled model
    device: str = "cpu"
    dtype: Dtype = "float32"  # int8: Whisper alone

    chunk_size: int = 16  # encoder frames per streaming window
    num_left_chunks: int = -1  # chunks of attention history; -1: all of it
    offline_chunk_size: int = -1  # chunk mask of offline forwards; -1: full context
    finalize_padding_ms: int = 500  # silence decoded after the last real sample, at least
    max_chunks_per_step: int | None = None  # windows per stream and step; None: all there are

    max_batch_size: int = 32  # running streams, and the width of an offline forward
    preferred_batch_size: list[int] | None = None  # kept sorted and without repeats
    schedule_policy: SchedulePolicy = "window"
    length_window_factor: int = 4  # the window is this many batches long
    length_bucket_ratio: float = 0.0  # least min_len / max_len of a batch; 0: off
    max_offline_pad_ratio: float = 4.0  # most max_len · B / sum_len of a batch; 0: off
    max_batch_frames: int | None = None  # most max_len · B of one forward
    max_wait_time: float = 0.2  # whoever has waited this long is served by age alone
    streaming_cohort_admit: bool = True
    tenant_fairness: bool = False  # tenants take turns; see docs/scheduler.md
    one_forward_per_step: bool = False  # of utterances, also where no stream runs: others wait

    block_size_frames: int = 16  # encoder frames per block of the key-value cache
    max_num_blocks: int | None = None  # None: as many as the streams need
    use_cuda_graphs: bool = True  # accepted; every device runs eagerly today
    feature_graph_batch_buckets: list[int] | None = None  # None: the preferred sizes

    def __post_init__(self) -> None:
        self._check_model()
        self._check_batching()
        self._check_memory()
        for name in ("preferred_batch_size", "feature_graph_batch_buckets"):
            object.__setattr__(self, name, self._sizes(name))
        if self.feature_graph_batch_buckets is None and self.preferred_batch_size is not None:
            object.__setattr__(self, "feature_graph_batch_buckets", [*self.preferred_batch_size])

    def _check_model(self) -> None:
        self._require(bool(self.device), "device", "a torch device")
        self._require(self.dtype in DTYPES, "dtype", f"one of {', '.join(DTYPES)}")
        self._require(self.chunk_size >= 1, "chunk_size", "at least 1")
        self._require(self.num_left_chunks >= -1, "num_left_chunks", "at least -1")
        self._require(
            self.offline_chunk_size == -1 or self.offline_chunk_size >= 1,
            "offline_chunk_size",
            "-1 or at least 1",
        )
        self._require(self.finalize_padding_ms >= 0, "finalize_padding_ms", "at least 0")
        self._require_count_or_none("max_chunks_per_step")

    def _check_batching(self) -> None:
        self._require(self.max_batch_size >= 1, "max_batch_size", "at least 1")
        self._require(
            self.schedule_policy in POLICIES, "schedule_policy", f"one of {', '.join(POLICIES)}"
        )
        self._require(self.length_window_factor >= 1, "length_window_factor", "at least 1")
        self._require(0 <= self.length_bucket_ratio <= 1, "length_bucket_ratio", "in [0, 1]")
        # A batch never pads to less than its useful frames, so a cap below 1 admits nothing.
        self._require(
            self.max_offline_pad_ratio == 0 or self.max_offline_pad_ratio >= 1,
            "max_offline_pad_ratio",
            "0 or at least 1",
        )
        self._require_count_or_none("max_batch_frames")
        self._require(self.max_wait_time >= 0, "max_wait_time", "at least 0")

    def _check_memory(self) -> None:
        self._require(self.block_size_frames >= 1, "block_size_frames", "at least 1")
        self._require(
            self.chunk_size <= self.block_size_frames,
            "chunk_size",
            f"at most block_size_frames ({self.block_size_frames})",
        )
        self._require_count_or_none("max_num_blocks")

    def _sizes(self, name: str) -> list[int] | None:
        """The batch sizes of field `name`, rising and distinct; None where it is not set."""
        sizes = getattr(self, name)
        if sizes is None:
            return None
        self._require(len(sizes) > 0, name, "None or at least one size")
        self._require(
            all(1 <= size <= self.max_batch_size for size in sizes),
            name,
            f"sizes from 1 to max_batch_size ({self.max_batch_size})",
        )
        return sorted(set(sizes))

    def _require_count_or_none(self, name: str) -> None:
        value = getattr(self, name)
        self._require(value is None or value >= 1, name, "None or at least 1")

    def _require(self, holds: bool, name: str, rule: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")
