"""The groups of `worker.settings`: frozen, typed, and closed to unknown names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from oasr.audio.gates import Vad
from oasr.audio.pcm import Encoding
from oasr.audio.segmenter import SegmenterConfig
from oasr.engine.config import Dtype, SchedulePolicy
from worker.ingress import READERS

_CPU_WAIT_MS: Final = 1_000
_GPU_WAIT_MS: Final = 200


class Group(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        validate_default=True,
        protected_namespaces=(),
    )


TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class Topics(Group):
    """Names of the topics, and what they are created with."""

    chunks: TopicName = "oasr.audio.chunks"
    """Audio of live calls, read."""
    files: TopicName = "oasr.audio.files"
    """Recordings, read."""
    transcripts: TopicName = "oasr.transcripts"
    """Finals."""
    partials: TopicName = "oasr.transcripts.partial"
    """Partials."""
    events: TopicName = "oasr.events"
    """What happens to sessions and files."""
    dead_letters: TopicName = "oasr.dead-letters"
    """Refused messages."""
    state: TopicName = "oasr.state"
    """Session maps that do not fit in the commit metadata; kept at least as long as the input."""
    partitions: PositiveInt = 12
    """Partitions of the topics that `oasr-worker topics --create` makes."""
    replication: Annotated[int, Field(ge=-1)] = -1
    """Replicas of those topics; -1: the broker's default."""

    @model_validator(mode="after")
    def _distinct(self) -> Topics:
        names = [value for value in self.model_dump().values() if isinstance(value, str)]
        if len(set(names)) != len(names):
            raise ValueError("two topics have the same name")
        return self


class Model(Group):
    """The model and how it is streamed."""

    dir: Path | None = None
    """A directory of WeNet or, for `lanes: files`, of Whisper; default: the model inside the
    package."""
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    """`cpu`, `cuda` or `cuda:N`."""
    dtype: Dtype = "float32"
    """Precision of the forward pass; `int8` is for Whisper."""
    chunk_size: Annotated[int, Field(ge=1, le=25)] = 16
    """Encoder frames (40 ms) a streaming step decodes."""
    num_left_chunks: Annotated[int, Field(ge=0)] = 4
    """Chunks a frame can look back. Bounded, so that memory and time per chunk do not grow with
    the utterance; 4 (2.6 s) costs the bundled model 0.0 to 0.3 points of word error rate."""


class Engine(Group):
    """Batching and its limits."""

    max_batch_size: PositiveInt = 64
    """Streams, or windows of files, that share a forward pass."""
    max_batch_frames: PositiveInt = 3_000
    """Padded feature frames (10 ms) of a batch of file windows: how long one can hold up calls."""
    max_wait_time_ms: NonNegativeInt | None = None
    """Who waited this long is served by age alone; default 1 s on a CPU, else 200 ms. Below a few
    steps' time, everybody is overdue and priorities stop to matter."""
    schedule_policy: SchedulePolicy = "window"
    """Order of the file windows that wait."""
    tenant_fairness: bool = False
    """Whether tenants (the option `tenant` of a message) take turns where more waits than can be
    served: no tenant has more streams, or a larger share of file windows, while others wait."""
    max_num_blocks: PositiveInt | None = None
    """Ceiling of the pool of caches, in blocks of 16 encoder frames (108 KiB with the bundled
    model); open streams take up to 6 each, and those that wait for audio go to host memory when it
    is full. Default: it grows with the streams."""
    max_chunks_per_step: PositiveInt = 8
    """Chunks of one stream that a step decodes, when it is behind."""
    torch_threads: PositiveInt = 1
    """Threads of a forward pass on the CPU. Several wait for each other wherever cores are shared
    (measured: 3 times slower beside one busy process); scale out by replicas. Where a larger model
    needs them, set `OMP_WAIT_POLICY=PASSIVE` as well."""

    def wait_time_ms(self, device: str) -> int:
        """`max_wait_time_ms`, or its default for the device."""
        if self.max_wait_time_ms is not None:
            return self.max_wait_time_ms
        return _CPU_WAIT_MS if device == "cpu" else _GPU_WAIT_MS


class Audio(Group):
    """What chunks may be."""

    encoding: Encoding | None = None
    """Encoding of chunks that name none; default: they are refused."""
    sample_rate: Annotated[int, Field(ge=4_000, le=192_000)] | None = None
    """Sample rate of chunks that name none; default: they are refused."""
    max_value_bytes: PositiveInt = 1 << 20
    """Largest value of a chunk."""
    content_type: str | None = None
    """Media type of values without a `content-type`, one of those in `docs/adapters.md`; default:
    they are raw audio."""

    @field_validator("content_type")
    @classmethod
    def _has_a_reader(cls, name: str | None) -> str | None:
        if name is not None and name not in READERS:
            raise ValueError(f"not one of {', '.join(READERS)}")
        return name


class Endpointing(Group):
    """Where speech begins and ends, by the audio alone."""

    pre_roll_ms: Annotated[int, Field(ge=0, le=2_000)] = 300
    """Audio before the onset that belongs to the segment."""
    min_silence_ms: Annotated[int, Field(ge=100, le=10_000)] = 800
    """Silence after speech that ends a segment."""
    max_utterance_ms: Annotated[int, Field(ge=1_000, le=60_000)] = 20_000
    """Longest segment; it is cut in a pause."""
    no_speech_ms: Annotated[int, Field(ge=500, le=30_000)] = 2_000
    """Length of a span without speech."""
    quiet_search_ms: Annotated[int, Field(ge=100, le=30_000)] = 5_000
    """How far before the maximum length a pause is looked for."""
    gate: bool = True
    """False: segments begin at once, without waiting for speech."""
    vad: Vad = Vad.ENERGY
    """What tells speech from background: `energy`, or `silero`, which needs the extra `vad`."""

    @field_validator("vad")
    @classmethod
    def _installed(cls, vad: Vad) -> Vad:
        if not vad.is_installed:
            raise ValueError(f"{vad} is not installed: pip install 'oasr-worker[vad]'")
        return vad

    @model_validator(mode="after")
    def _possible(self) -> Endpointing:
        self.segmenter_config()
        return self

    def segmenter_config(self) -> SegmenterConfig:
        """The segmenter's share; ValueError if the times cannot work together."""
        return SegmenterConfig(**self.model_dump())


class Sessions(Group):
    """How long sessions live."""

    idle_finalize_ms: PositiveInt = 10_000
    """A channel that gets no audio for this long is cut."""
    ttl_ms: PositiveInt = 3_600_000
    """A session that gets no message for this long ends."""
    emit_empty: bool = False
    """Publish finals of segments without text."""
    max_open: Annotated[int, Field(ge=1, le=5_000)] = 5_000
    """Sessions open at once on a partition; above it those end from which nothing came for longest,
    and at twice as many no other begins. All must fit in one record of the state topic."""
    reorder_messages: Annotated[int, Field(ge=0, le=64)] = 8
    """Messages of a stream that may wait for a missing one; one more declares it lost."""
    reorder_audio_ms: Annotated[int, Field(ge=0, le=10_000)] = 1_000
    """Audio that may wait for a missing message; more declares it lost. All workers of a group need
    the same limits: an heir decides by them what its predecessor decided."""
    clock_tolerance_ms: NonNegativeInt = 200
    """How far `position_ms` may be ahead of the audio that came: what is more is a pause. Like the
    three others here, the same for all workers of a group."""
    max_fill_ms: Annotated[int, Field(ge=0, le=60_000)] = 10_000
    """Missing audio up to which silence takes its place; in what is longer nothing is heard."""

    @model_validator(mode="after")
    def _ordered(self) -> Sessions:
        if self.idle_finalize_ms > self.ttl_ms:
            raise ValueError("idle_finalize_ms must not exceed ttl_ms")
        return self


class Delivery(Group):
    """How finals, events and dead letters are delivered."""

    mode: Literal["at-least-once", "exactly-once"] = "at-least-once"
    """`exactly-once`: in transactions with the commits; readers need `read_committed`."""
    transaction_interval_ms: Annotated[int, Field(ge=10)] = 100
    """Time between transactions while there are records; a record that comes alone goes at once."""
    transaction_timeout_ms: Annotated[int, Field(ge=2_000, le=900_000)] = 10_000
    """After this the brokers abort a transaction whose owner is gone; an heir may wait for it."""


class Commits(Group):
    """Offset commits."""

    interval_ms: Annotated[int, Field(ge=10)] = 1_000
    """Time between the commits of a partition that moves."""


class Backpressure(Group):
    """When to stop reading: by audio that the engine could decode now."""

    high_audio_s: PositiveFloat = 600.0
    """Above this, the partitions that hold most are paused."""
    low_audio_s: PositiveFloat = 120.0
    """Below this, they go on."""
    min_pause_ms: NonNegativeInt = 2_000
    """Shortest pause: each throws away what the client has fetched ahead."""

    @model_validator(mode="after")
    def _ordered(self) -> Backpressure:
        if self.low_audio_s >= self.high_audio_s:
            raise ValueError("low_audio_s must be below high_audio_s")
        return self


class Http(Group):
    """Metrics and health."""

    host: str = "0.0.0.0"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 9_108
    """Port to listen on; 0: any free one."""
    max_turn_age_ms: PositiveInt = 30_000
    """A loop that has not turned for this long is not alive."""
    max_broker_age_ms: PositiveInt = 60_000
    """A worker that no broker has answered for this long is not ready."""


class Log(Group):
    """Log lines on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe level that is written."""
    format: Literal["text", "json"] = "text"
    """`json`: one object a line."""
