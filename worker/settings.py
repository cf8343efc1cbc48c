"""Everything the worker can be told: the only module that reads the environment.

A setting `kafka.bootstrap_servers` is the variable `OASR_KAFKA__BOOTSTRAP_SERVERS`, or stands in
the YAML file that `--config` or `OASR_CONFIG_FILE` names; the environment wins. A name that sets
nothing stops the start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import BaseModel, PositiveInt, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from oasr.engine.config import EngineConfig
from worker.codec import ChunkDefaults
from worker.settings_decoding import Decoding
from worker.settings_files import Files
from worker.settings_groups import (
    Audio,
    Backpressure,
    Commits,
    Delivery,
    Endpointing,
    Engine,
    Http,
    Log,
    Model,
    Sessions,
    Topics,
)
from worker.settings_kafka import Kafka
from worker.settings_live_page import LivePage
from worker.settings_models import FILES, LIVE, ModelKey, SecondPass, ServedModel
from worker.settings_tracing import Tracing

PREFIX: Final = "OASR_"
CONFIG_FILE_VARIABLE: Final = "OASR_CONFIG_FILE"
# Switches of the test suites and build scripts; they never reach a setting.
_RESERVED: Final = ("OASR_TEST_", "OASR_REQUIRE_")


class SettingsError(Exception):
    """Settings that the worker cannot start with; `problems` has one line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Settings(BaseSettings):
    """The effective settings. Build them with `load`, so that problems read well."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    kafka: Kafka
    topics: Topics = Topics()
    model: Model = Model()
    models: dict[ModelKey, ServedModel] = {}
    """Several models by name: `live` and `files` are those of the lanes, others are asked for."""
    second_pass: SecondPass = SecondPass()
    engine: Engine = Engine()
    audio: Audio = Audio()
    endpointing: Endpointing = Endpointing()
    decoding: Decoding = Decoding()
    sessions: Sessions = Sessions()
    files: Files = Files()
    delivery: Delivery = Delivery()
    commits: Commits = Commits()
    backpressure: Backpressure = Backpressure()
    http: Http = Http()
    live_page: LivePage = LivePage()
    log: Log = Log()
    tracing: Tracing = Tracing()
    lanes: Literal["both", "live", "files"] = "both"
    """What this worker reads: the chunk topic (`live`), the file topic (`files`) or both."""
    drain_timeout_ms: PositiveInt = 30_000
    """On SIGTERM, how long file jobs in progress may take to finish."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 the signature is the library's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment, then the arguments: those are what the file says."""
        return env_settings, init_settings

    @model_validator(mode="after")
    def _no_stray_names(self) -> Settings:
        # pydantic-settings reports unknown names inside a group, not unknown groups.
        for name in sorted(os.environ):
            upper = name.upper()
            if not upper.startswith(PREFIX) or upper.startswith(_RESERVED):
                continue
            group = upper.removeprefix(PREFIX).split("__")[0].lower()
            if upper != CONFIG_FILE_VARIABLE and group not in type(self).model_fields:
                raise ValueError(f"the variable {name} sets nothing")
        return self

    @model_validator(mode="after")
    def _live_runs_here(self) -> Settings:
        if LIVE in self.models and self.models[LIVE].own_process:
            raise ValueError(f"models.{LIVE} runs in the worker's own process")
        return self

    @property
    def reads_calls(self) -> bool:
        """Whether this worker reads the chunk topic."""
        return self.lanes != "files"

    @property
    def reads_files(self) -> bool:
        """Whether this worker reads the file topic."""
        return self.lanes != "live"

    @property
    def files_group(self) -> str:
        """The consumer group of the file topic."""
        return self.kafka.files_group or f"{self.kafka.group}.files"

    def chunk_defaults(self) -> ChunkDefaults:
        """What a chunk that does not say it is taken to be."""
        audio = self.audio
        return ChunkDefaults(
            audio.encoding, audio.sample_rate, audio.max_value_bytes, audio.content_type
        )

    @property
    def served_models(self) -> dict[str, ServedModel]:
        """The models to load by name, the usual one first."""
        live = self.models.get(LIVE) or ServedModel(**self.model.model_dump())
        rest = {name: model for name, model in self.models.items() if name not in (LIVE, FILES)}
        files = {FILES: self.models[FILES]} if FILES in self.models else {}
        if not self.reads_calls:
            return {**(files or {LIVE: live}), **rest}
        return {LIVE: live, **files, **rest}

    def engine_config(self, model: ServedModel | None = None) -> EngineConfig:
        """The share of a model's engine, by default that of the only one."""
        if model is None:
            (model, *_) = self.served_models.values()
        engine = model.engine or self.engine
        return EngineConfig(
            ckpt_dir=model.dir,
            device=model.device,
            dtype=model.dtype,
            chunk_size=model.chunk_size,
            num_left_chunks=model.num_left_chunks,
            block_size_frames=max(16, model.chunk_size),
            max_batch_size=engine.max_batch_size,
            max_batch_frames=engine.max_batch_frames,
            max_num_blocks=engine.max_num_blocks,
            max_chunks_per_step=engine.max_chunks_per_step,
            max_wait_time=engine.wait_time_ms(model.device) / 1000,
            schedule_policy=engine.schedule_policy,
            tenant_fairness=engine.tenant_fairness,
            one_forward_per_step=self.reads_calls and len(self.served_models) > 1,
        )

    def describe(self) -> dict[str, Any]:
        """The effective settings by dotted name, secrets hidden."""
        return dict(_flat("", self.model_dump(mode="json")))


def name_brokers(bootstrap_servers: str) -> None:
    """Set `kafka.bootstrap_servers` for this process and its children, as a user would."""
    os.environ[f"{PREFIX}KAFKA__BOOTSTRAP_SERVERS"] = bootstrap_servers


def load(config_file: Path | str | None = None) -> Settings:
    """The effective settings; SettingsError with one line for each problem."""
    path = config_file or os.environ.get(CONFIG_FILE_VARIABLE)
    contents = _read(Path(path)) if path else {}
    # So that what is missing in it is named even if nothing in it is set.
    contents.setdefault("kafka", {})
    try:
        return Settings(**contents)
    except ValidationError as error:
        raise SettingsError([_problem(details) for details in error.errors()]) from None
    except UnreadableVariable as error:
        raise SettingsError([str(error)]) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        contents = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError([f"{path}: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: not UTF-8"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise SettingsError([f"{path}: not YAML{where}"]) from None
    if contents is None:
        return {}
    if not isinstance(contents, dict) or not all(isinstance(name, str) for name in contents):
        raise SettingsError([f"{path}: not a mapping of settings"])
    # Said here, because a group of the environment would replace one that is no mapping.
    misshapen = [name for name, value in contents.items() if _is_group(name) and not _holds(value)]
    if misshapen:
        raise SettingsError([f"{path}: {name} is not a mapping of settings" for name in misshapen])
    return {name: value for name, value in contents.items() if value is not None}


def _is_group(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and isinstance(field.annotation, type(BaseModel))


def _holds(value: object) -> bool:
    """Whether a group may be this: a mapping, or nothing."""
    return value is None or isinstance(value, dict)


def _problem(details: Mapping[str, Any]) -> str:
    """One line: the setting, its variable, and what is wrong. Never the value."""
    message = details["msg"].removeprefix("Value error, ")
    if not details["loc"]:
        return str(message)
    path = [str(part) for part in details["loc"]]
    return f"{'.'.join(path)} ({PREFIX}{'__'.join(path).upper()}): {message}"


def _flat(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        if not prefix and isinstance(value, dict):
            rows += _flat(f"{name}.", value)
        else:
            rows.append((prefix + name, value))
    return rows
