"""`oasr-worker run`: puts the worker together and keeps it turning."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from oasr import __version__
from oasr.errors import ModelError, OptionError
from worker import logs
from worker.assembly import Watched, assemble
from worker.connections import connection
from worker.delivery import make_outputs
from worker.health import CHECKS, Health, HealthServer
from worker.leaving import stop_when_asked
from worker.listening import ListenError
from worker.live_board import LiveBoard
from worker.live_page import LivePageServer
from worker.loading import ChildDeaths, load_models
from worker.metrics import Metrics, Registry
from worker.producer import FatalClientError
from worker.settings import Settings

logger = logging.getLogger(__name__)

FAILED = 1


def run(settings: Settings) -> int:
    """Work until SIGTERM or SIGINT; the exit status, 1 if the worker cannot go on."""
    logs.configure(settings.log.level, settings.log.format)
    registry = Registry()
    metrics = Metrics(registry)
    metrics.build_info.labels(__version__).set(1)
    http = settings.http
    health = Health(
        max_turn_age_s=http.max_turn_age_ms / 1000, max_broker_age_s=http.max_broker_age_ms / 1000
    )
    metrics.watch_health(CHECKS, health.passes)
    try:
        with HealthServer(settings.http.host, settings.http.port, registry, health) as server:
            logger.info("listening on port %d", server.port)
            with _live_page(settings) as board:
                return _watched(settings, metrics, health, board)
    except (ListenError, ModelError, OptionError) as error:  # the last: it cannot stream like this
        logger.error("%s", error)
        return FAILED


@contextmanager
def _live_page(settings: Settings) -> Iterator[LiveBoard | None]:
    """Serves the live page for the length of the block, if it is wanted."""
    page = settings.live_page
    if not page.enabled:
        yield None
        return
    board = LiveBoard()
    with LivePageServer(page, board) as server:
        logger.info("live page on http://%s:%d/", page.host, server.port)
        yield board


def _watched(settings: Settings, metrics: Metrics, health: Health, board: LiveBoard | None) -> int:
    """Work, and while the probes are still answered tell them if that cannot go on."""
    try:
        return _run(settings, metrics, health, board)
    except (ModelError, OptionError):
        raise
    except (FatalClientError, KafkaException) as error:  # the latter: poll of a dead client
        health.fatal = str(error)
        logger.error("%s", error)
    except Exception as error:
        health.fatal = repr(error)
        logger.critical("the worker fails", exc_info=True)
    return _end_now()


def _run(settings: Settings, metrics: Metrics, health: Health, board: LiveBoard | None) -> int:
    deaths = ChildDeaths(metrics)
    loaded = load_models(settings, metrics, deaths)
    outputs = make_outputs(settings, metrics)
    admin = AdminClient(connection(settings))
    watched = Watched(metrics, health, board)
    loop = assemble(settings, loaded, deaths, outputs, admin, watched)
    stop_when_asked(loop.stop)
    health.begin()
    logger.info("working")
    loop.run()
    logger.info("left in order")
    return 0


def _end_now() -> NoReturn:
    """End without taking leave: a client that is fenced never comes back from leaving its group."""
    logging.shutdown()
    os._exit(FAILED)
