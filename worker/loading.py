"""Loads the models that the settings name, each where it is to run, and says who serves what."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from oasr.decoding.options import DecodingOptions
from oasr.engine.engine import ASREngine
from oasr.engine.families import WHISPER, kind_of
from oasr.errors import ModelError, OptionError
from oasr.models.registry import ModelInfo
from worker.admission import Admission
from worker.cloudevents import ModelName
from worker.engine_process import SpawnedChild
from worker.isolated_engine import IsolatedEngine
from worker.metrics import Metrics
from worker.model_engine import ModelEngine
from worker.model_process import Budget, ModelProcess
from worker.models import MARK, Apart, Models, Served
from worker.recognizers import Recognizers, load_engine
from worker.routing import Route, Router
from worker.second_pass import SecondPasses
from worker.settings import Settings
from worker.settings_models import FILES, LIVE, SecondPass, ServedModel

logger = logging.getLogger(__name__)

WARM_UP_S = 2
MODEL_RATE = 16_000


class ChildDeaths:
    """Counts processes of ours that died, and tells the lanes."""

    def __init__(self, metrics: Metrics) -> None:
        self.told: list[Callable[[], None]] = []
        self._metrics = metrics

    def count(self, part: str) -> None:
        self._metrics.child_deaths.labels(part).inc()
        for told in self.told:
            told()


@dataclass(frozen=True, slots=True)
class Loaded:
    """One model, ready to serve."""

    info: ModelInfo
    served: Served
    check: Callable[[DecodingOptions], None]
    reads_calls: bool


class LoadedModels:
    """What the lanes are built from."""

    def __init__(self, loaded: Mapping[str, Loaded], settings: Settings) -> None:
        """OptionError where a model cannot honour the settings' way of decoding."""
        self.models = Models({name: one.served for name, one in loaded.items()})
        self.names = {
            name: ModelName(one.info.name, one.info.digest) for name, one in loaded.items()
        }
        self.usual = next(iter(self.names.values()))
        self._routes: dict[str, Route] = {}
        for name, one in loaded.items():
            decoding = settings.served_models[name].decoding or settings.decoding
            admission = Admission(one.info.languages, decoding.options(), one.check)
            self._routes[name] = Route(name, admission, one.reads_calls)
        self._first = next(iter(loaded))
        self._files = FILES if FILES in loaded else self._first
        self._second = FILES if FILES in loaded and self._first != FILES else None
        self._kinds = {name: kind_of(model.dir) for name, model in settings.served_models.items()}
        self._routes.setdefault(FILES, self._routes[self._first])

    def calls(self) -> Router:
        """Admission of live calls."""
        return Router(self._routes, self._first, is_live=True, second=self._second)

    def second_passes(self, limits: SecondPass) -> SecondPasses | None:
        """For calls that ask for them, where there is a model for recordings."""
        if self._second is None:
            return None
        return SecondPasses(
            name=self._kinds[self._second],
            model=self._second,
            reader=partial(self.models.of, model=self._second),
            holding=self.models.holding,
            most_bytes=limits.max_audio_bytes,
            most_session_s=limits.max_session_s,
        )

    def files(self) -> Router:
        """Admission of recordings."""
        return Router(self._routes, self._files, is_live=False)


def load_models(settings: Settings, metrics: Metrics, deaths: ChildDeaths) -> LoadedModels:
    """All models of the settings; ModelError or OptionError where one cannot serve."""
    loaded: dict[str, Loaded] = {}
    for name, model in settings.served_models.items():
        try:
            if runs_apart(settings, name, model):
                loaded[name] = _apart(settings, name, model, deaths)
            else:
                loaded[name] = _here(settings, name, model, deaths, is_first=not loaded)
        except (ModelError, OptionError):
            for one in loaded.values():
                one.served.close()
            raise
        info = loaded[name].info
        metrics.model_info.labels(info.name, info.digest, info.device, info.dtype).set(1)
        logger.info("model %s: %s (%s) on %s", name, info.name, info.digest, info.device)
    return LoadedModels(loaded, settings)


def runs_apart(settings: Settings, name: str, model: ServedModel) -> bool:
    """Whether a model gets a process of its own."""
    if model.own_process is not None:
        return model.own_process
    if model.device != "cpu" or not settings.reads_calls or name == LIVE:
        return False
    return name == FILES or kind_of(model.dir) == WHISPER


def _here(
    settings: Settings, name: str, model: ServedModel, deaths: ChildDeaths, is_first: bool
) -> Loaded:
    threads = (model.engine or settings.engine).torch_threads
    config = settings.engine_config(model)
    if is_first:
        torch.set_num_threads(threads)
    engine = ASREngine(config)
    # The first forward of each kind allocates and tunes; no call should pay for that.
    silence = np.zeros(WARM_UP_S * MODEL_RATE, dtype=np.float32)
    engine.transcribe([silence])
    if settings.reads_calls and (is_first or engine.capabilities.streaming):
        stream = engine.add_streaming_request()
        engine.feed_chunk(stream, silence, is_last=True)
        engine.run()
    load = partial(load_engine, config, threads)
    child = IsolatedEngine(
        lambda: SpawnedChild(load), time.monotonic, lambda: deaths.count("engine")
    )
    served = Recognizers(engine, child, time.monotonic, name + MARK)
    return Loaded(engine.model_info, served, engine.check_decoding, engine.capabilities.streaming)


def _apart(settings: Settings, name: str, model: ServedModel, deaths: ChildDeaths) -> Loaded:
    threads = (model.engine or settings.engine).torch_threads
    load = partial(load_engine, settings.engine_config(model), threads)
    budget = Budget(model.nice, model.cpus)
    engine = ModelEngine(
        lambda: ModelProcess(load, budget),
        time.monotonic,
        lambda: deaths.count("model"),
        model.step_timeout_s,
    )
    description = engine.begin()
    served = Apart(engine, time.monotonic, name + MARK)
    return Loaded(description.info, served, description.check, reads_calls=False)
