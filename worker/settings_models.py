"""The models of a worker that has several: the mapping `models` of `worker.settings`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, NonNegativeInt, PositiveInt

from worker.settings_decoding import Decoding
from worker.settings_groups import Engine, Group, Model

LIVE: Final = "live"
FILES: Final = "files"
MODEL_NAME: Final = r"^[a-z][a-z0-9]{0,31}$"

ModelKey = Annotated[str, Field(pattern=MODEL_NAME)]


class SecondPass(Group):
    """Calls heard again by the file model after their end, where they asked for it."""

    max_audio_bytes: PositiveInt = 256 << 20
    """Audio that is kept for second passes, of all calls together; for more there is no pass."""
    max_session_s: PositiveInt = 7_200
    """Speech of one call that is kept, its channels together; of a longer call none."""


class ServedModel(Model):
    """One model of several; what it leaves out is as `model`, `engine` and `decoding` have it."""

    decoding: Decoding | None = None
    """How it decodes what asks for nothing else; default: as the group `decoding` says."""
    engine: Engine | None = None
    """Its batching, and its threads on a CPU; default: as the group `engine` says."""
    own_process: bool | None = None
    """Whether it runs in a process of its own, where it reads recordings alone; default: on a CPU,
    beside live calls, the model of the file lane and those that cannot stream."""
    nice: Annotated[int, Field(ge=0, le=19)] = 19
    """Of its own process: how far it stands back where cores are short."""
    cpus: tuple[NonNegativeInt, ...] = ()
    """Of its own process: the cores that it may use (JSON list); default: all of the worker."""
    step_timeout_s: PositiveInt = 600
    """Of its own process: one that works on a batch for longer counts as dead."""
